// A job whose steps are not as predicted: what is said of it, and how it changes its plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/wire/graph_proto.h"
#include "planner_service/planner/planner.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/measured_job.h"
#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::JobHarness;
using testing::SmallSpec;

constexpr int64_t kPass = 1'000'000;
constexpr int64_t kTransfer = 20'000'000;

class JobReplanTest : public testing::MeasuredJobTest {
 protected:
  // A running job of two stages with one sample at a time, where the planner may choose anything;
  // on two devices, or on all there are, which are two. The job's own planner makes no more than
  // the first plan.
  void Run(int32_t num_devices = 2, v1::JobSpec spec = SmallSpec(), int32_t effort = 1) {
    for (const char* name : {"a", "b"}) {
      harness_->Connect(name);
      harness_->Worker(name).silent_on = {Message::kStart};
      harness_->Worker(name).total_steps = 100'000;
    }
    spec.set_steps(100'000);
    spec.mutable_plan_options()->set_micro_batch(1);
    const std::string first = harness_->Submit(spec);
    ASSERT_EQ(harness_->Await(first, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
    *spec.mutable_strategy() = harness_->Get(first).plan().strategy();
    ASSERT_TRUE(harness_->jobs->Cancel(first).ok());
    harness_->Pump();  // Its devices are free.
    spec.clear_planner();
    spec.clear_plan_options();
    spec.mutable_plan_options()->set_effort(effort);
    spec.set_num_devices(num_devices);
    job_ = harness_->Submit(spec);
    ASSERT_EQ(harness_->Await(job_, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
    harness_->Pump();
    ASSERT_EQ(Job().plan().program().devices_size(), 2);
  }
  // Steps take so long, and messages so little, that better plans take all devices.
  void NeedDevices() {
    pass_ns_ = 20 * kPass;
    transfer_ns_ = 1'000;
  }
};

TEST_F(JobReplanTest, ComparesActionsWithThePlans) {
  Run();
  Steps(1, 9, 50 * kPass);
  EXPECT_FALSE(Job().has_measurement());
  Step(10, 50 * kPass);
  const v1::StepMeasurement measured = Job().measurement();
  EXPECT_EQ(measured.step(), 10);
  EXPECT_EQ(measured.steps(), 5);
  int64_t forwards = 0;
  for (const v1::ActionTime& action : measured.actions()) {
    EXPECT_EQ(action.measured_ns(), action.size_bytes() > 0 ? kTransfer : kPass);
    if (action.kind() == v1::ACTION_KIND_FORWARD) forwards += action.count();
  }
  EXPECT_EQ(forwards, 16);  // Eight samples, one at a time, in two stages.
  EXPECT_TRUE(harness_->List()[0].measurement().actions().empty());
}

TEST_F(JobReplanTest, OneSlowStepIsNoDrift) {
  Run();
  const int64_t predicted = Job().metrics().predicted_step_ns();
  ASSERT_GT(predicted, 0);
  Steps(1, 20, predicted);
  Step(21, 100 * predicted);
  Steps(22, 40, predicted);
  EXPECT_FALSE(Job().has_drift());
  EXPECT_EQ(Job().metrics().recent_step_ns(), predicted);
}

TEST_F(JobReplanTest, ALastingDriftIsNamedAndEnds) {
  Run();
  const int64_t predicted = Job().metrics().predicted_step_ns();
  Steps(1, 16, 3 * predicted);
  EXPECT_FALSE(Job().has_drift());  // Fifteen steps but the first.
  Step(17, 3 * predicted);
  ASSERT_TRUE(Job().has_drift());
  EXPECT_NEAR(Job().drift().ratio(), 2, 1e-9);
  EXPECT_EQ(Job().drift().since_step(), 17);
  // Workers were asked to tell some steps to come.
  const auto asked = Newest("b", Message::kTraceSteps);
  ASSERT_TRUE(asked.has_value());
  EXPECT_TRUE(asked->trace_steps().operators());
  const int64_t first = asked->trace_steps().first_step();
  EXPECT_GT(first, 17);
  Steps(18, first + asked->trace_steps().steps(), 3 * predicted);
  EXPECT_EQ(Job().measurement().step(), first + asked->trace_steps().steps());
  ASSERT_FALSE(Job().drift().causes().empty());
  EXPECT_THAT(Job().drift().causes(0), HasSubstr("link "));
  const int64_t now = first + asked->trace_steps().steps();
  Steps(now + 1, now + 64, predicted);
  EXPECT_FALSE(Job().has_drift());
}

TEST_F(JobReplanTest, RefusesWhatCannotBePlannedAnew) {
  EXPECT_EQ(Replan(false, "jobs/9").status().code(), absl::StatusCode::kNotFound);
  Run();
  const auto early = Replan(true);
  EXPECT_EQ(early.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(early.status().message(), HasSubstr("no measured steps yet"));
  Steps(1, 10, kPass);
  ASSERT_TRUE(harness_->jobs->Cancel(job_).ok());
  const auto ended = Replan(true);
  EXPECT_EQ(ended.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(ended.status().message(), HasSubstr("is not running"));
}

TEST_F(JobReplanTest, OnlyLookingChangesNothing) {
  Run();
  Steps(1, 10, 200 * kPass);
  const auto looked = Replan(false);
  ASSERT_TRUE(looked.ok()) << looked.status();
  ASSERT_TRUE(looked->has_better()) << looked->message();
  EXPECT_FALSE(looked->applied());
  EXPECT_LT(looked->better().evaluation().iteration_ns(),
            looked->present().evaluation().iteration_ns());
  // The messages of eight micro-batches follow each other.
  EXPECT_GE(looked->present().evaluation().iteration_ns(), 8 * kTransfer * 9 / 10);
  EXPECT_EQ(harness_->Heard("a", Message::kCheckpointAfter), 0);
}

TEST_F(JobReplanTest, LeavesOutFreeDevicesThatAreClosedToJobs) {
  Run(/*num_devices=*/0);
  Steps(1, 10, 200 * kPass);
  harness_->Connect("c");
  for (const auto& [said, devices] : {std::pair(v1::WORKER_AVAILABILITY_CORDONED, 2),
                                      std::pair(v1::WORKER_AVAILABILITY_OPEN, 3)}) {
    ASSERT_TRUE(harness_->registry.SetAvailability("c", said).ok());
    const auto looked = Replan(false);
    ASSERT_TRUE(looked.ok()) << looked.status();
    EXPECT_EQ(looked->devices_size(), devices);
  }
}

TEST_F(JobReplanTest, LeavesFreeDevicesToJobsThatWaitForThemAndToQuotas) {
  JobManagerOptions options;
  options.quotas.other_owners = 3;
  harness_ = std::make_unique<JobHarness>(&store_, options);
  NeedDevices();
  Run(/*num_devices=*/0);
  Steps(1, 10, 200 * kPass);
  for (const char* worker : {"c", "d"}) harness_->Connect(worker);
  EXPECT_EQ(Replan(false)->devices_size(), 3);
  v1::JobSpec spec = SmallSpec();
  spec.set_owner("bob");
  // One that its quota lets start never is left nothing, one that devices would do for is.
  for (const auto& [wanted, left] : {std::pair(4, 3), std::pair(3, 2)}) {
    spec.set_num_devices(wanted);
    const std::string waits = harness_->Submit(spec);
    EXPECT_EQ(Replan(false)->devices_size(), left);
    ASSERT_TRUE(harness_->jobs->Cancel(waits).ok());
  }
  const auto changed = Replan(true);
  ASSERT_TRUE(changed.ok() && changed->applied()) << changed.status();
  ASSERT_EQ(changed->devices_size(), 3);
  // Another job of the owner is faster.
  spec = SmallSpec();
  spec.set_num_devices(1);
  spec.mutable_plan_options()->set_num_stages(1);
  harness_->Submit(spec);
  harness_->Pump();
  WriteShares(changed->after_step());
  WriteManifest(changed->after_step());
  EXPECT_EQ(Job().replans(), 0);
  EXPECT_THAT(Job().warnings(), ::testing::Contains(HasSubstr("it keeps its plan: quota of jobs "
                                                              "without an owner: 3 devices")));
}

TEST_F(JobReplanTest, TakesNoDeviceThatSomebodyHasComeToWaitFor) {
  NeedDevices();
  Run(/*num_devices=*/0);
  Steps(1, 10, 200 * kPass);
  harness_->Connect("c");
  const auto changed = Replan(true);
  ASSERT_TRUE(changed.ok() && changed->applied()) << changed.status();
  ASSERT_EQ(changed->devices_size(), 3);
  v1::JobSpec spec = SmallSpec();
  spec.set_num_devices(2);
  const std::string waits = harness_->Submit(spec);
  EXPECT_THAT(harness_->Get(waits).message(), HasSubstr("1 is free"));
  WriteShares(changed->after_step());
  WriteManifest(changed->after_step());
  EXPECT_EQ(Job().replans(), 0);
  EXPECT_EQ(harness_->Heard("a", Message::kGoOn), 1);
  EXPECT_THAT(Job().warnings(),
              ::testing::Contains("it keeps its plan: other jobs wait for devices"));
}

TEST_F(JobReplanTest, TakesTurnsWithJobsOfItsOwnerThatArePlanned) {
  Run();
  Steps(1, 10, 200 * kPass);
  for (const char* worker : {"c", "d"}) harness_->Connect(worker);
  absl::Notification go, ended;
  harness_->HoldPlanning(go);
  v1::JobSpec spec = SmallSpec();
  spec.set_num_devices(1);
  spec.mutable_plan_options()->set_num_stages(1);
  const std::string one = harness_->Submit(spec), other = harness_->Submit(spec);
  v1::ReplanJobRequest request;
  request.set_name(job_);
  std::vector<v1::JobState> seen;
  harness_->jobs->Replan(request, [&](const auto& /*response*/) {
    for (const std::string& job : {one, other}) seen.push_back(harness_->Get(job).state());
    ended.Notify();
  });
  go.Notify();
  ended.WaitForNotification();
  EXPECT_THAT(seen, ElementsAre(v1::JOB_STATE_STARTING, v1::JOB_STATE_PLANNING));
  harness_->Await(other, v1::JOB_STATE_STARTING);
}

TEST_F(JobReplanTest, APlannerThatEndsWaitsForNoSearch) {
  testing::GraphBuilder builder("long");
  Argument x = builder.Feature("x", {16});
  for (int i = 0; i < 100; ++i) x = builder.Linear(x, 16, 16);
  builder.Loss(x, {16});
  v1::JobSpec spec = SmallSpec();
  *spec.mutable_graph() = ToProto(builder.Build());
  spec.set_planner("graphpipe");
  Run(/*num_devices=*/2, spec, kMostSearchEffort);  // Hours.
  Steps(1, 10, 200 * kPass);
  absl::StatusOr<v1::ReplanJobResponse> answer = absl::UnknownError("none");
  // So many wait for the pool's only thread before long.
  const auto await_queued = [&](int count) {
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    while (harness_->pool.queued() != count && absl::Now() < deadline)
      absl::SleepFor(absl::Milliseconds(1));
    return harness_->pool.queued() == count;
  };
  absl::Notification free;
  harness_->HoldPlanning(free);
  std::thread asks([&] { answer = Replan(true); });
  EXPECT_TRUE(await_queued(1));
  free.Notify();
  EXPECT_TRUE(await_queued(0));  // The search has begun.
  const absl::Time begin = absl::Now();
  harness_->jobs->Suspend();
  asks.join();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  EXPECT_TRUE(absl::IsUnavailable(answer.status())) << answer.status();
  EXPECT_TRUE(absl::IsUnavailable(Replan(true).status()));
}

TEST_F(JobReplanTest, ChangesOverAtACheckpointThatAllStopAfter) {
  Run();
  Steps(1, 10, 200 * kPass);
  const auto changed = Replan(true);
  ASSERT_TRUE(changed.ok()) << changed.status();
  ASSERT_TRUE(changed->applied()) << changed->message();
  for (const char* worker : {"a", "b"}) {
    const auto asked = Newest(worker, Message::kCheckpointAfter);
    ASSERT_TRUE(asked.has_value());
    EXPECT_TRUE(asked->checkpoint_after().hold());
    EXPECT_EQ(asked->checkpoint_after().step(), changed->after_step());
  }
  EXPECT_EQ(Replan(false).status().code(), absl::StatusCode::kFailedPrecondition);
  const int64_t step = changed->after_step();
  Steps(11, step, 200 * kPass);
  const int64_t generation = Job().generation();
  WriteShares(step);
  EXPECT_EQ(Job().generation(), generation);
  WriteManifest(step);
  const v1::Job again = harness_->Await(job_, v1::JOB_STATE_RUNNING);
  ASSERT_EQ(again.state(), v1::JOB_STATE_RUNNING) << again.message();
  EXPECT_EQ(again.generation(), generation + 1);
  EXPECT_EQ(again.replans(), 1);
  EXPECT_EQ(again.restarts(), 0);
  EXPECT_EQ(again.plan().fingerprint(), changed->better().fingerprint());
  EXPECT_FALSE(again.has_drift());
  EXPECT_FALSE(again.has_measurement());
  const auto prepared = Newest("a", Message::kPrepare);
  EXPECT_EQ(prepared->prepare().spec().resume_path(), absl::StrCat("out/checkpoints/step-", step));
  EXPECT_FALSE(prepared->prepare().restart());
}

TEST_F(JobReplanTest, ADeviceThatHeardTooLateMakesAllGoOnAndTryAgain) {
  Run();
  Steps(1, 10, 200 * kPass);
  const auto changed = Replan(true);
  ASSERT_TRUE(changed.ok() && changed->applied());
  WriteShares(changed->after_step(), "it was announced too late", /*skipped=*/true);
  EXPECT_EQ(harness_->Heard("a", Message::kGoOn), 1);
  EXPECT_EQ(harness_->Heard("b", Message::kGoOn), 1);
  const auto again = Newest("a", Message::kCheckpointAfter);
  EXPECT_GT(again->checkpoint_after().step(), changed->after_step());
  EXPECT_TRUE(again->checkpoint_after().hold());
  EXPECT_EQ(Job().generation(), 1);
  WriteShares(again->checkpoint_after().step());
  WriteManifest(again->checkpoint_after().step());
  EXPECT_EQ(harness_->Await(job_, v1::JOB_STATE_RUNNING).generation(), 2);
}

TEST_F(JobReplanTest, ACheckpointThatCannotBeWrittenKeepsThePlan) {
  Run();
  Steps(1, 10, 200 * kPass);
  const auto changed = Replan(true);
  ASSERT_TRUE(changed.ok() && changed->applied());
  WriteShares(changed->after_step(), "no space left");
  EXPECT_EQ(harness_->Heard("b", Message::kGoOn), 1);
  EXPECT_EQ(harness_->Heard("b", Message::kCheckpointAfter), 1);
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Job().replans(), 0);
  EXPECT_THAT(Job().warnings(), ::testing::Contains(HasSubstr("it keeps its plan: ")));
}

TEST_F(JobReplanTest, AWorkerThatWasNotHeardOfMakesAllGoOnAndTryAgain) {
  Run();
  Steps(1, 10, 200 * kPass);
  const auto changed = Replan(true);
  ASSERT_TRUE(changed.ok() && changed->applied());
  harness_->Disconnect("b");
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RECOVERING);
  harness_->Connect("b", {{job_, 1}});
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(harness_->Heard("a", Message::kGoOn), 1);
  EXPECT_EQ(harness_->Heard("a", Message::kCheckpointAfter), 2);
  EXPECT_EQ(harness_->Heard("b", Message::kCheckpointAfter), 2);
  const int64_t step = Newest("b", Message::kCheckpointAfter)->checkpoint_after().step();
  WriteShares(step);
  WriteManifest(step);
  EXPECT_EQ(harness_->Await(job_, v1::JOB_STATE_RUNNING).generation(), 2);
}

TEST_F(JobReplanTest, WorkersThatWaitForAPlannerThatIsGoneGoOn) {
  Run();
  Steps(1, 10, 200 * kPass);
  ASSERT_TRUE(Replan(true)->applied());
  const int64_t generation = Job().generation();
  harness_->jobs->Suspend();
  harness_ = std::make_unique<JobHarness>(&store_);
  for (const char* worker : {"a", "b"}) harness_->Connect(worker, {{job_, generation}});
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(harness_->Heard("a", Message::kGoOn), 1);
  EXPECT_EQ(harness_->Heard("b", Message::kGoOn), 1);
}

}  // namespace
}  // namespace stagewright
