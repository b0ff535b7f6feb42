// A job of two replicas, one of which is slower than the other: when it is named, and for how long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "common/wire/graph_proto.h"
#include "common/wire/strategy_proto.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/measured_job.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using testing::SmallSpec;

constexpr int64_t kFast = 20'000'000, kSlow = 36'000'000;  // A step.

class JobStragglersTest : public testing::MeasuredJobTest {
 protected:
  // A running job of one stage on the workers a and b.
  void Run() {
    for (const char* worker : {"a", "b"}) Connect(worker);
    v1::JobSpec spec = SmallSpec();
    spec.set_steps(100'000);
    spec.set_max_restarts(5);
    spec.set_on_loss(v1::LOSS_POLICY_WAIT);
    spec.clear_plan_options();
    const Graph graph = FromProto(spec.graph()).value();
    std::vector<int> nodes;
    for (int node = 0; node < spec.graph().nodes_size(); ++node) nodes.push_back(node);
    *spec.mutable_strategy() = ToProto(testing::MakeStrategy(graph, {nodes}, {{0, 1}}, 8, 4));
    job_ = harness_->Submit(spec);
    Begin();
  }
  void Connect(const std::string& worker) {
    harness_->Connect(worker);
    harness_->Worker(worker).silent_on = {Message::kStart};
    harness_->Worker(worker).total_steps = 100'000;
  }
  void Begin() {
    ASSERT_EQ(harness_->Await(job_, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING)
        << Job().message();
    harness_->Pump();
    ASSERT_EQ(Job().plan().program().devices_size(), 2);
    next_ = 1;
  }
  // The second device is as fast as the first one, or not.
  void Slow(bool slow) {
    times_ = {{1, slow ? 1.8 : 1.0}};
    step_ns_ = slow ? kSlow : kFast;
  }
  void StepsUntil(int64_t last) {
    Steps(next_, last, step_ns_);
    next_ = last + 1;
  }
  // The steps that workers were asked to tell, and those before them.
  void Window() {
    const auto asked = Newest("a", Message::kTraceSteps);
    ASSERT_TRUE(asked.has_value());
    const int64_t last = asked->trace_steps().first_step() + asked->trace_steps().steps();
    ASSERT_GE(last, next_) << "no more steps were asked for";
    StepsUntil(last);
    ASSERT_EQ(Job().measurement().step(), last);
  }
  // The first window, which says nothing, and the one that follows at once.
  void TwoWindows() {
    StepsUntil(10);
    ASSERT_EQ(Job().measurement().step(), 10);
    Window();
  }
  std::vector<v1::Event> Events(v1::EventKind kind) const { return harness_->Events(job_, kind); }
  // That workers have one event of the kind, b's.
  void ExpectToldOfB(v1::EventKind kind) const {
    const std::vector<v1::Event> told = harness_->WorkerEvents(kind);
    ASSERT_THAT(told, SizeIs(1));
    EXPECT_EQ(told[0].worker(), "b");
    EXPECT_EQ(told[0].count(), 1);
  }

  int64_t next_ = 1;
  int64_t step_ns_ = kFast;
};

TEST_F(JobStragglersTest, IsNamedAfterTwoWindowsAndGoesOnce) {
  Run();
  Slow(true);
  TwoWindows();
  EXPECT_THAT(Job().stragglers(), SizeIs(0));
  const int64_t since = next_ - 5;
  Window();
  ASSERT_THAT(Job().stragglers(), SizeIs(1));
  const v1::Straggler named = Job().stragglers(0);
  EXPECT_EQ(named.device(), "b/cpu0");
  EXPECT_EQ(named.stage(), 0);
  EXPECT_NEAR(named.ratio(), 1.8, 1e-3);
  EXPECT_EQ(named.since_step(), since);
  EXPECT_NEAR(static_cast<double>(named.busy_ns()), 1.8 * static_cast<double>(named.expected_ns()),
              2);
  ASSERT_THAT(Events(v1::EVENT_KIND_STRAGGLER), SizeIs(1));
  const v1::Event begun = Events(v1::EVENT_KIND_STRAGGLER)[0];
  EXPECT_THAT(begun.message(),
              HasSubstr("device b/cpu0 takes 1.8 times as long as its like (steps "));
  EXPECT_EQ(begun.worker(), "b");
  ExpectToldOfB(v1::EVENT_KIND_STRAGGLER);

  // Still slow is no news; as fast as before is.
  Slow(false);
  StepsUntil(next_ + 8);
  Window();
  EXPECT_THAT(Job().stragglers(), SizeIs(0));
  EXPECT_EQ(Events(v1::EVENT_KIND_STRAGGLER)[0].count(), 1);
  ASSERT_THAT(Events(v1::EVENT_KIND_STRAGGLER_GONE), SizeIs(1));
  EXPECT_EQ(Events(v1::EVENT_KIND_STRAGGLER_GONE)[0].message(),
            "device b/cpu0 is no longer slower than its like");
  ExpectToldOfB(v1::EVENT_KIND_STRAGGLER_GONE);
}

TEST_F(JobStragglersTest, AJobWhoseDevicesAreAlikeHasNone) {
  Run();
  TwoWindows();
  StepsUntil(next_ + 200);
  EXPECT_THAT(Job().stragglers(), SizeIs(0));
  EXPECT_THAT(Events(v1::EVENT_KIND_STRAGGLER), SizeIs(0));
}

TEST_F(JobStragglersTest, OneThatBeginsLateIsLookedForAtOnce) {
  Run();
  TwoWindows();
  StepsUntil(next_ + 100);
  Slow(true);
  StepsUntil(next_ + 8);
  Window();
  EXPECT_THAT(Job().stragglers(), SizeIs(0));
  Window();
  ASSERT_THAT(Job().stragglers(), SizeIs(1));
  EXPECT_EQ(Job().stragglers(0).device(), "b/cpu0");
}

TEST_F(JobStragglersTest, AnotherRunBeginsWithoutAny) {
  Run();
  Slow(true);
  TwoWindows();
  Window();
  ASSERT_THAT(Job().stragglers(), SizeIs(1));
  harness_->Disconnect("b");
  EXPECT_THAT(Job().stragglers(), SizeIs(1));  // It may come back with its part.
  Connect("b");
  EXPECT_THAT(Job().stragglers(), SizeIs(0));
  Begin();
  ASSERT_EQ(Job().restarts(), 1);
  TwoWindows();
  EXPECT_THAT(Job().stragglers(), SizeIs(0));
  Window();
  EXPECT_THAT(Job().stragglers(), SizeIs(1));
  ASSERT_TRUE(harness_->jobs->Cancel(job_).ok());
  EXPECT_THAT(Job().stragglers(), SizeIs(0));
}

TEST_F(JobStragglersTest, NobodyIsNamedWhileDevicesAreToStop) {
  Connect("c");
  Run();
  Slow(true);
  TwoWindows();
  const auto asked = Newest("a", Message::kTraceSteps);
  StepsUntil(asked->trace_steps().first_step() - 5);
  v1::SetWorkerAvailabilityRequest drain;
  drain.set_name("b");
  drain.set_availability(v1::WORKER_AVAILABILITY_DRAINING);
  ASSERT_TRUE(harness_->jobs->SetAvailability(drain).ok());
  ASSERT_TRUE(Newest("a", Message::kCheckpointAfter).has_value());
  Window();
  EXPECT_THAT(Job().stragglers(), SizeIs(0));
  EXPECT_THAT(Events(v1::EVENT_KIND_STRAGGLER), SizeIs(0));
}

}  // namespace
}  // namespace stagewright
