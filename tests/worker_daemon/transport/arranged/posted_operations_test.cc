#include "worker_daemon/transport/arranged/posted_operations.h"

#include "gtest/gtest.h"
#include "worker_daemon/transport/arranged/control_link.h"

namespace stagewright {
namespace {

const std::vector<int> kGroup = {1, 2, 5};
const std::set<std::vector<int>> kLists = {{5, 2}, {1, 2, 5}};

ArrangedOperation Send(int peer, uint32_t channel = 3) {
  return {{.kind = MoverPart::Kind::kSend, .peer = peer, .bytes = 8}, Tag{channel}, {}};
}

ArrangedOperation Reduction(std::vector<int> devices) {
  ArrangedOperation operation{{.kind = MoverPart::Kind::kReduce, .bytes = 12}, Tag{3}, {}};
  operation.part.devices = std::move(devices);
  return operation;
}

TEST(PostedOperationsTest, ChecksPeersAndChannels) {
  EXPECT_EQ(CheckOperation(Send(5), 2, kGroup, kLists), absl::OkStatus());
  EXPECT_EQ(CheckOperation(Send(4), 2, kGroup, kLists),
            absl::InvalidArgumentError("device 2 is not connected to device 4"));
  EXPECT_FALSE(CheckOperation(Send(2), 2, kGroup, kLists).ok());
  EXPECT_FALSE(CheckOperation(Send(5, Tag::kMaxChannel + 1), 2, kGroup, kLists).ok());
  EXPECT_EQ(CheckOperation(Send(5, Tag::kMaxChannel), 2, kGroup, kLists), absl::OkStatus());
}

TEST(PostedOperationsTest, ChecksTheDevicesOfReductions) {
  EXPECT_EQ(CheckOperation(Reduction({5, 2}), 2, kGroup, kLists), absl::OkStatus());
  EXPECT_FALSE(CheckOperation(Reduction({5, 1}), 2, kGroup, kLists).ok());
  EXPECT_FALSE(CheckOperation(Reduction({2, 5, 2}), 2, kGroup, kLists).ok());
  EXPECT_EQ(CheckOperation(Reduction({2, 3}), 2, kGroup, kLists),
            absl::InvalidArgumentError("device 2 is not connected to device 3"));
  // The order of a list is part of it.
  EXPECT_EQ(
      CheckOperation(Reduction({2, 5}), 2, kGroup, kLists),
      absl::FailedPreconditionError("device 2: collectives among devices 2, 5 were not opened"));
}

TEST(PostedOperationsTest, OffersSayWhatTheArrangerNeeds) {
  const TransferOffer send = OfferOf(Send(5), 2, 77);
  EXPECT_EQ(send.kind, TransferOffer::Kind::kSend);
  EXPECT_EQ(send.device, 2);
  EXPECT_EQ(send.id, 77);
  EXPECT_EQ(send.peer, 5);
  EXPECT_EQ(send.tag, Tag{3});
  EXPECT_EQ(send.bytes, 8);
  EXPECT_EQ(send.members, 0);

  ArrangedOperation reduction = Reduction({5, 2});
  reduction.part.element = Element::kBFloat16;
  const TransferOffer offer = OfferOf(reduction, 2, 78);
  EXPECT_EQ(offer.kind, TransferOffer::Kind::kReduce);
  EXPECT_EQ(offer.group, Fingerprint({5, 2}));
  EXPECT_EQ(offer.members, 2);
  EXPECT_EQ(offer.element, static_cast<uint32_t>(Element::kBFloat16));
}

TEST(PostedOperationsTest, AMismatchNamesSenderAndReceiver) {
  TransferOrder order;
  order.mismatch = true;
  order.offered = 8;
  order.expected = 4;
  EXPECT_EQ(MismatchOf(Send(5), 2, order), SizeMismatch(2, 5, Tag{3}, 8, 4));
  ArrangedOperation receive = Send(5);
  receive.part.kind = MoverPart::Kind::kReceive;
  EXPECT_EQ(MismatchOf(receive, 2, order), SizeMismatch(5, 2, Tag{3}, 8, 4));
  EXPECT_EQ(MismatchOf(Reduction({2, 5}), 2, order).code(), absl::StatusCode::kInvalidArgument);
}

TEST(PostedOperationsTest, HasEachUntilItEnds) {
  PostedOperations operations;
  std::vector<int> done;
  const auto add = [&](int number) {
    ArrangedOperation operation = Send(number);
    operation.done = [&done, number](absl::Status) { done.push_back(number); };
    return operations.Add(std::move(operation));
  };
  const uint64_t first = add(10);
  const uint64_t second = add(11);
  EXPECT_NE(first, second);
  ASSERT_NE(operations.Find(first), nullptr);
  EXPECT_EQ(operations.Find(first)->part.peer, 10);
  operations.Remove(first)(absl::OkStatus());
  EXPECT_EQ(done, (std::vector<int>{10}));
  EXPECT_EQ(operations.Find(first), nullptr);
  const uint64_t third = add(12);
  EXPECT_TRUE(third != first && third != second);
  for (const auto& end : operations.RemoveAll()) end(absl::OkStatus());
  EXPECT_EQ(done, (std::vector<int>{10, 11, 12}));
  EXPECT_TRUE(operations.empty());
}

TEST(PostedOperationsTest, HandsOutRefusalsOnce) {
  PostedOperations operations;
  absl::Status told;
  operations.Refuse([&](absl::Status status) { told = std::move(status); },
                    absl::InternalError("no"));
  EXPECT_TRUE(operations.any_refused());
  EXPECT_TRUE(operations.empty());
  for (const auto& [done, status] : operations.TakeRefused()) done(status);
  EXPECT_EQ(told, absl::InternalError("no"));
  EXPECT_FALSE(operations.any_refused());
}

}  // namespace
}  // namespace stagewright
