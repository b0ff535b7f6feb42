#include "worker_daemon/transport/ucx/ucx_transfers.h"

#include "gtest/gtest.h"
#include "tests/worker_daemon/transport/ucx/ucx_workers.h"
#include "worker_daemon/transport/ucx/ucx_endpoint.h"

namespace stagewright::testing {
namespace {

constexpr Tag kTag{5, Traffic::kGradient, 6};

// Device 0, which sends, and device 1.
class UcxTransfersTest : public ::testing::Test {
 protected:
  ~UcxTransfersTest() override {
    if (endpoint_.is_open()) endpoint_.Close();
  }
  void SetUp() override {
    ASSERT_EQ(endpoint_.Open(*worker_, peer_->address(), [](ucs_status_t) {}), UCS_OK);
  }

  Transport::Done Store(absl::Status& status) {
    status = absl::UnknownError("not done");
    return [&status](absl::Status result) { status = std::move(result); };
  }
  void Send(std::vector<int>& data, absl::Status& status, Tag tag = kTag) {
    sends_.Start(endpoint_.get(),
                 {true, 1, tag, data.data(), data.size() * sizeof(int), Store(status)});
  }
  UcxOperation Receive(std::vector<int>& data, absl::Status& status, Tag tag = kTag) {
    return {false, 0, tag, data.data(), data.size() * sizeof(int), Store(status)};
  }
  bool Await(const absl::Status& status) {
    return StepUntil(
        [&] {
          Progress({worker_.get(), peer_.get()});
          sends_.RunDones();
          receives_.RunDones();
        },
        [&] { return !absl::IsUnknown(status); });
  }

  absl::Status failure_;  // What either end is told about the other.
  std::unique_ptr<UcxWorker> owned_ = MakeUcxWorker(), peer_owned_ = MakeUcxWorker();
  const GenerationKey sends_key_{{"job", 1, 0}, std::string(GenerationKey::kBytes, 'k')};
  const GenerationKey receives_key_{{"job", 1, 1}, std::string(GenerationKey::kBytes, 'k')};
  UcxTransfers sends_{{"job", 1, 0}, &sends_key_, owned_.get(), [this](int) { return failure_; }};
  UcxTransfers receives_{
      {"job", 1, 1}, &receives_key_, peer_owned_.get(), [this](int) { return failure_; }};
  UcxEndpoint endpoint_;
  // Last, so that the workers end first.
  std::unique_ptr<UcxWorker> worker_ = std::move(owned_), peer_ = std::move(peer_owned_);
};

TEST_F(UcxTransfersTest, MovesDataAndTellsBothEndsOnce) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{1} << 20}) {
    std::vector<int> out(count, 7), in(count, 0);
    absl::Status sent, received;
    receives_.Start(nullptr, Receive(in, received));
    EXPECT_TRUE(receives_.pending_with(0));
    EXPECT_FALSE(receives_.pending_with(2));
    Send(out, sent);
    ASSERT_TRUE(Await(sent) && Await(received)) << count;
    EXPECT_EQ(sent, absl::OkStatus());
    EXPECT_EQ(received, absl::OkStatus());
    EXPECT_EQ(in, out);
    EXPECT_FALSE(receives_.pending_with(0));
    EXPECT_TRUE(sends_.told() && receives_.told());
    EXPECT_FALSE(receives_.RunDones());
  }
}

// Who does not have the key has no tags that meet those of who has.
TEST_F(UcxTransfersTest, TakesNothingOfWhoHasAnotherKeyOrNone) {
  const GenerationKey none({"job", 1, 0}, "");
  const GenerationKey wrong({"job", 1, 0}, std::string(GenerationKey::kBytes, 'w'));
  const GenerationKey older({"job", 0, 0}, std::string(GenerationKey::kBytes, 'k'));
  std::vector<int> forged(1, 6), out(1, 7), in(1);
  absl::Status ignored, sent, received;
  std::vector<std::unique_ptr<UcxTransfers>> strangers;
  for (const GenerationKey* key : {&none, &wrong, &older}) {
    strangers.push_back(std::make_unique<UcxTransfers>(
        TransportIdentity{"job", 1, 0}, key, worker_.get(), [](int) { return absl::OkStatus(); }));
    strangers.back()->Start(endpoint_.get(),
                            {true, 1, kTag, forged.data(), sizeof(int), Store(ignored)});
  }
  receives_.Start(nullptr, Receive(in, received));
  Send(out, sent);
  ASSERT_TRUE(Await(received));
  EXPECT_EQ(received, absl::OkStatus());
  EXPECT_EQ(in, out);
  endpoint_.Close();
  worker_.reset();  // Before the strangers, to whom it refers.
}

TEST_F(UcxTransfersTest, AReceiverThatExpectsAnotherSizeNamesBoth) {
  std::vector<int> out(3), fewer(2), more(4);
  absl::Status sent, received;
  for (std::vector<int>* in : {&fewer, &more}) {
    Send(out, sent);
    receives_.Start(nullptr, Receive(*in, received));
    ASSERT_TRUE(Await(received));
    EXPECT_EQ(received, SizeMismatch(0, 1, kTag, 12, in->size() * sizeof(int)));
  }
}

TEST_F(UcxTransfersTest, CancelledReceivesFailWithTheFailureOfThePeer) {
  std::vector<int> in(1);
  absl::Status received;
  receives_.Start(nullptr, Receive(in, received));
  failure_ = absl::UnavailableError("gone");
  receives_.CancelReceives(1);  // Another peer's.
  EXPECT_TRUE(receives_.told());
  receives_.CancelReceives(0);
  EXPECT_FALSE(receives_.told());
  EXPECT_TRUE(absl::IsUnknown(received));  // Until its `done` is called.
  EXPECT_TRUE(receives_.RunDones());
  EXPECT_EQ(received, failure_);
}

TEST_F(UcxTransfersTest, TakesWhatHasArrivedAndNothingElse) {
  std::vector<int> out(1, 7), in(1), last(1), never(1);
  absl::Status sent, received, refused;
  Send(out, sent);
  Send(out, sent, {8});
  receives_.Start(nullptr, Receive(last, received, {8}));
  ASSERT_TRUE(Await(received));  // The message before it has arrived then, too.
  failure_ = absl::UnavailableError("gone");
  receives_.TakeArrived(Receive(in, received));
  receives_.TakeArrived(Receive(never, refused, {9}));
  EXPECT_TRUE(receives_.RunDones());
  EXPECT_EQ(received, absl::OkStatus());
  EXPECT_EQ(in, out);
  EXPECT_EQ(refused, failure_);
}

TEST_F(UcxTransfersTest, WhatIsAbandonedIsToldOnce) {
  std::vector<int> in(1);
  absl::Status received;
  int told = 0;
  UcxOperation receive = Receive(in, received);
  receive.done = [&](absl::Status status) {
    received = std::move(status);
    ++told;
  };
  receives_.Start(nullptr, std::move(receive));
  failure_ = absl::UnavailableError("gone");
  receives_.Abandon(0);
  EXPECT_FALSE(receives_.pending_with(0));
  EXPECT_TRUE(receives_.RunDones());
  EXPECT_EQ(received, failure_);
  peer_.reset();
  receives_.FailAll();
  EXPECT_FALSE(receives_.RunDones());
  EXPECT_EQ(told, 1);
}

TEST_F(UcxTransfersTest, FailsAllThatAnEndedWorkerLeft) {
  std::vector<int> in(1);
  absl::Status first, second, refused;
  receives_.Start(nullptr, Receive(in, first));
  receives_.Start(nullptr, Receive(in, second, {9}));
  receives_.Refuse(Store(refused), absl::InvalidArgumentError("no"));
  failure_ = absl::CancelledError("closed");
  peer_.reset();
  receives_.FailAll();
  EXPECT_TRUE(receives_.RunDones());
  EXPECT_EQ(first, failure_);
  EXPECT_EQ(second, failure_);
  EXPECT_EQ(refused, absl::InvalidArgumentError("no"));
}

}  // namespace
}  // namespace stagewright::testing
