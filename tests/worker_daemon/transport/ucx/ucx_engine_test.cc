#include "worker_daemon/transport/ucx/ucx_engine.h"

#include <poll.h>

#include "gtest/gtest.h"
#include "tests/worker_daemon/transport/ucx/ucx_workers.h"

namespace stagewright::testing {
namespace {

// Devices 0 and 1, connected, each driven by the test.
class UcxEngineTest : public ::testing::Test {
 protected:
  UcxEngineTest() {
    for (int i = 0; i < 2; ++i) {
      auto worker = MakeUcxWorker();
      addresses_[i] = {worker->address(), "", ""};
      engines_.push_back(std::make_unique<UcxEngine>(TransportIdentity{"job", 1, i}, "",
                                                     std::move(worker), nullptr));
    }
    int ready = 0;
    for (int i = 0; i < 2; ++i) {
      engines_[i]->Connect({{1 - i, addresses_[1 - i]}},
                           [&](int, absl::Status status) { ready += status.ok(); });
    }
    EXPECT_TRUE(StepUntil([this] { Step(); }, [&] { return ready == 2; }));
  }
  ~UcxEngineTest() override {
    for (auto& engine : engines_) engine->Abort(absl::CancelledError("closed"));
    EXPECT_TRUE(StepUntil([this] { Step(); },
                          [&] { return engines_[0]->closed() && engines_[1]->closed(); }));
  }

  void Step() {
    for (auto& engine : engines_) engine->Progress();
  }
  // Starts an operation of one int and returns what becomes of it: UNKNOWN until it is done.
  std::shared_ptr<absl::Status> Post(int device, bool is_send, int* data, Tag tag, int peer = -1) {
    auto result = std::make_shared<absl::Status>(absl::UnknownError("not done"));
    engines_[device]->Post({is_send, peer < 0 ? 1 - device : peer, tag, data, sizeof(int),
                            [result](absl::Status status) { *result = std::move(status); }});
    return result;
  }
  absl::Status Await(const std::shared_ptr<absl::Status>& result) {
    StepUntil([this] { Step(); }, [&] { return !absl::IsUnknown(*result); });
    return *result;
  }

  std::map<int, UcxPeerAddress> addresses_;
  std::vector<std::unique_ptr<UcxEngine>> engines_;
};

TEST_F(UcxEngineTest, MovesMessages) {
  int out = 5, in = 0;
  const auto received = Post(1, false, &in, {3});
  const auto sent = Post(0, true, &out, {3});
  EXPECT_EQ(Await(sent), absl::OkStatus());
  EXPECT_EQ(Await(received), absl::OkStatus());
  EXPECT_EQ(in, 5);
}

TEST_F(UcxEngineTest, RefusesWhatCannotBeButNotFromWithinPost) {
  int out = 5;
  const auto stranger = Post(0, true, &out, {3}, 9);
  const auto channel = Post(0, true, &out, {Tag::kMaxChannel + 1});
  EXPECT_TRUE(absl::IsUnknown(*stranger));
  EXPECT_EQ(Await(stranger), absl::InvalidArgumentError("device 0 is not connected to device 9"));
  EXPECT_EQ(Await(channel).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(UcxEngineTest, WhatWasSentBeforeAnAbortIsReceivedAfterIt) {
  int out = 5, in = 0, never = 0;
  const auto pending = Post(1, false, &never, {8});
  const auto sent = Post(0, true, &out, {3});
  EXPECT_EQ(Await(sent), absl::OkStatus());
  engines_[0]->Abort(absl::AbortedError("enough"));
  const absl::Status gone = absl::UnavailableError("device 0 has gone: enough");
  EXPECT_EQ(Await(pending), gone);
  EXPECT_EQ(Await(Post(1, false, &in, {3})), absl::OkStatus());
  EXPECT_EQ(in, 5);
  EXPECT_EQ(Await(Post(1, false, &never, {8})), gone);
  EXPECT_EQ(Await(Post(1, true, &out, {3})), gone);
}

TEST_F(UcxEngineTest, AnAbortEndsTheWorkerAndWhatIsPending) {
  int in = 0;
  const auto pending = Post(0, false, &in, {3});
  EXPECT_GE(engines_[0]->event_fd(), 0);
  engines_[0]->Abort(absl::AbortedError("enough"));
  EXPECT_FALSE(engines_[0]->closed());
  EXPECT_EQ(Await(pending), absl::AbortedError("enough"));
  ASSERT_TRUE(StepUntil([this] { Step(); }, [&] { return engines_[0]->closed(); }));
  EXPECT_EQ(engines_[0]->event_fd(), -1);
  EXPECT_TRUE(engines_[0]->end_fds().empty());
  EXPECT_TRUE(engines_[0]->Arm());
  EXPECT_EQ(engines_[0]->next_timer(), absl::InfiniteFuture());
  EXPECT_EQ(Await(Post(0, false, &in, {3})), absl::AbortedError("enough"));
}

TEST_F(UcxEngineTest, IsWokenByWhatArrives) {
  ASSERT_TRUE(StepUntil([this] { Step(); }, [&] { return engines_[1]->Arm(); }));
  std::vector<pollfd> fds;
  fds.push_back({engines_[1]->event_fd(), POLLIN, 0});
  for (const int fd : engines_[1]->end_fds()) fds.push_back({fd, POLLIN, 0});
  int out = 5;
  const auto sent = Post(0, true, &out, {3});
  EXPECT_TRUE(StepUntil([this] { engines_[0]->Progress(); },
                        [&] { return poll(fds.data(), fds.size(), 0) > 0; }));
  EXPECT_EQ(Await(sent), absl::OkStatus());
}

}  // namespace
}  // namespace stagewright::testing
