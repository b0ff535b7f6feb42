#include "worker_daemon/transport/ucx/ucx_edges.h"

#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker_daemon/transport/ucx/ucx_workers.h"

namespace stagewright::testing {
namespace {

using ::testing::HasSubstr;

// A device and what its owner heard of its edges.
struct Device {
  explicit Device(int number, const std::string& tls = "posix,self")
      : owned(MakeUcxWorker(tls)),
        control({"job", 1, number}, owned.get()),
        transfers({"job", 1, number}, owned.get(), [this](int p) { return edges.FailureOf(p); }),
        edges(owned.get(), &control, &transfers),
        worker(std::move(owned)) {}
  ~Device() {
    edges.CloseAll();
    control.StopListening();
  }

  void Connect(int peer, const UcxPeerAddress& address) {
    edges.Connect({{peer, address}}, [this](int device, absl::Status status) {
      reports.push_back({device, std::move(status)});
    });
  }
  void Step() {
    bool any = ucp_worker_progress(worker->get()) != 0;
    for (const UcxControlMessage& message : control.Take()) {
      edges.Handle(message);
      any = true;
    }
    any |= control.Listen();
    edges.Settle(!any);
    transfers.RunDones();
  }

  std::unique_ptr<UcxWorker> owned;
  UcxControlLine control;
  UcxTransfers transfers;
  UcxEdges edges;
  std::vector<std::pair<int, absl::Status>> reports;
  std::unique_ptr<UcxWorker> worker;  // Last, so that it ends first.
};

class UcxEdgesTest : public ::testing::TestWithParam<std::string> {
 protected:
  void ConnectBoth() {
    one_.Connect(2, {two_.worker->address(), "", ""});
    two_.Connect(1, {one_.worker->address(), "", ""});
    ASSERT_TRUE(Both([&] { return !one_.reports.empty() && !two_.reports.empty(); }));
    EXPECT_EQ(one_.reports[0].second, absl::OkStatus());
    EXPECT_EQ(two_.reports[0].second, absl::OkStatus());
  }
  bool Both(const std::function<bool()>& done, absl::Duration patience = absl::Seconds(20)) {
    return StepUntil(
        [&] {
          one_.Step();
          two_.Step();
        },
        done, patience);
  }

  Device one_{1, GetParam()}, two_{2, GetParam()};
};

TEST_P(UcxEdgesTest, AreReadyOnceBothHaveGreeted) {
  one_.Connect(2, {two_.worker->address(), "", ""});
  EXPECT_FALSE(Both([&] { return !one_.reports.empty(); }, absl::Milliseconds(100)));
  two_.Connect(1, {one_.worker->address(), "", ""});
  ASSERT_TRUE(Both([&] { return !one_.reports.empty() && !two_.reports.empty(); }));
  EXPECT_EQ(one_.reports.at(0), std::make_pair(2, absl::OkStatus()));
  EXPECT_EQ(two_.reports.at(0), std::make_pair(1, absl::OkStatus()));
  EXPECT_EQ(one_.edges.next_timer(), absl::InfiniteFuture());
  EXPECT_EQ(one_.edges.Find(1), nullptr);
}

TEST_P(UcxEdgesTest, AByeFailsTheEdgeAtThePeerAndIsAnswered) {
  ConnectBoth();
  const absl::Time start = absl::Now();
  EXPECT_FALSE(one_.edges.MayEnd());
  one_.edges.Leave(absl::AbortedError("enough"));
  one_.edges.Leave(absl::AbortedError("again"));
  EXPECT_EQ(one_.edges.FailureOf(2), absl::AbortedError("enough"));
  EXPECT_GT(one_.edges.next_timer(), start + UcxEdges::kAnswer / 2);
  ASSERT_TRUE(Both([&] { return one_.edges.MayEnd(); }));
  EXPECT_LT(absl::Now() - start, UcxEdges::kAnswer);
  EXPECT_EQ(two_.edges.FailureOf(1), absl::UnavailableError("device 1 has gone: enough"));
  EXPECT_TRUE(two_.edges.Find(1)->left);
  EXPECT_FALSE(two_.edges.MayEnd());
  EXPECT_EQ(one_.reports.size(), 1);
  EXPECT_EQ(two_.reports.size(), 1);
}

TEST_P(UcxEdgesTest, WaitsNoLongerThanASecondForAnswers) {
  ConnectBoth();
  one_.edges.Leave(absl::AbortedError("enough"));
  const absl::Time start = absl::Now();
  ASSERT_TRUE(StepUntil([&] { one_.Step(); }, [&] { return one_.edges.MayEnd(); }));
  EXPECT_GE(absl::Now() - start, UcxEdges::kAnswer / 2);
}

TEST_P(UcxEdgesTest, AByeBeforeConnectFailsConnect) {
  one_.Connect(2, {two_.worker->address(), "", ""});
  one_.edges.Leave(absl::AbortedError("enough"));
  EXPECT_EQ(one_.reports.at(0), std::make_pair(2, absl::AbortedError("enough")));
  EXPECT_FALSE(Both([] { return false; }, absl::Milliseconds(100)));
  two_.Connect(1, {one_.worker->address(), "", ""});
  EXPECT_EQ(two_.reports.at(0),
            std::make_pair(1, absl::UnavailableError("device 1 has gone: enough")));
}

TEST_P(UcxEdgesTest, ConnectAfterLeavingFails) {
  one_.edges.Leave(absl::AbortedError("enough"));
  one_.Connect(2, {two_.worker->address(), "", ""});
  EXPECT_EQ(one_.reports.at(0), std::make_pair(2, absl::AbortedError("enough")));
}

TEST_P(UcxEdgesTest, AWatchNoticesWhoGoesWithoutAWord) {
  auto life = LifeLine::Create();
  ASSERT_NE(life, nullptr);
  one_.Connect(2, {two_.worker->address(), "", life->name()});
  two_.Connect(1, {one_.worker->address(), "", ""});
  ASSERT_TRUE(Both([&] { return !one_.reports.empty(); }));
  EXPECT_EQ(one_.edges.wake_fds().size(), 1);
  life.reset();
  ASSERT_TRUE(Both([&] { return !one_.edges.FailureOf(2).ok(); }));
  EXPECT_THAT(std::string(one_.edges.FailureOf(2).message()), HasSubstr("its transport ended"));
  EXPECT_TRUE(one_.edges.wake_fds().empty());
}

INSTANTIATE_TEST_SUITE_P(All, UcxEdgesTest, ::testing::Values("posix,self", "tcp,self"),
                         [](const auto& test) {
                           return test.param.substr(0, test.param.find(','));
                         });

}  // namespace
}  // namespace stagewright::testing
