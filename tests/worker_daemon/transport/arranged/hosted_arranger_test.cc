#include "worker_daemon/transport/arranged/hosted_arranger.h"

#include "gtest/gtest.h"

namespace stagewright {
namespace {

// Device 0 has the arranger.
void OfferPair(HostedArranger& arranger, int sender, int receiver, uint64_t id) {
  TransferOffer send;
  send.kind = TransferOffer::Kind::kSend;
  send.device = sender;
  send.peer = receiver;
  send.id = id;
  send.tag = Tag{static_cast<uint32_t>(id)};
  TransferOffer receive = send;
  receive.kind = TransferOffer::Kind::kReceive;
  std::swap(receive.device, receive.peer);
  arranger.Add(send);
  arranger.Add(receive);
}

TEST(HostedArrangerTest, ItsOwnOrderWaitsUntilTheOtherEndWasTold) {
  HostedArranger arranger(0);
  OfferPair(arranger, 0, 1, 7);
  EXPECT_TRUE(arranger.any_offers());
  const std::vector<TransferOrder> others = arranger.Arrange();
  EXPECT_FALSE(arranger.any_offers());
  ASSERT_EQ(others.size(), 1);
  EXPECT_EQ(others[0].device, 1);
  EXPECT_FALSE(arranger.own_due());
  EXPECT_TRUE(arranger.TakeOwn().empty());
  arranger.Told(others[0].round);
  EXPECT_TRUE(arranger.own_due());
  const std::vector<TransferOrder> own = arranger.TakeOwn();
  ASSERT_EQ(own.size(), 1);
  EXPECT_EQ(own[0].id, 7);
  EXPECT_FALSE(arranger.own_due());
}

TEST(HostedArrangerTest, AllOrdersOfTheRoundMustBeTold) {
  HostedArranger arranger(0);
  OfferPair(arranger, 0, 1, 7);
  OfferPair(arranger, 2, 3, 8);  // Fits into the same round.
  const std::vector<TransferOrder> others = arranger.Arrange();
  ASSERT_EQ(others.size(), 3);
  for (const TransferOrder& order : others) {
    EXPECT_EQ(order.round, others[0].round);
    EXPECT_FALSE(arranger.own_due());
    arranger.Told(order.round);
  }
  EXPECT_TRUE(arranger.own_due());
}

TEST(HostedArrangerTest, ItsOwnOrdersKeepTheOrderOfRounds) {
  HostedArranger arranger(0);
  OfferPair(arranger, 0, 1, 7);
  OfferPair(arranger, 0, 1, 8);
  const std::vector<TransferOrder> others = arranger.Arrange();
  ASSERT_EQ(others.size(), 2);
  ASSERT_LT(others[0].round, others[1].round);
  arranger.Told(others[1].round);  // The later round is not due before the earlier one.
  EXPECT_TRUE(arranger.TakeOwn().empty());
  arranger.Told(others[0].round);
  EXPECT_EQ(arranger.TakeOwn().size(), 2);
}

TEST(HostedArrangerTest, ForgetsWhatWillNotStart) {
  HostedArranger arranger(0);
  OfferPair(arranger, 0, 1, 7);
  const std::vector<TransferOrder> others = arranger.Arrange();
  OfferPair(arranger, 0, 1, 8);
  arranger.Clear();
  EXPECT_FALSE(arranger.any_offers());
  arranger.Told(others.at(0).round);  // May come after that.
  EXPECT_FALSE(arranger.own_due());
}

}  // namespace
}  // namespace stagewright
