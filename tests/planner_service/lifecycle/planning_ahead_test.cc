#include "planner_service/lifecycle/planning_ahead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "planner_service/jobs/job_proto.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/job_harness.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Message = v1::ConnectResponse;

class PlanningAheadTest : public ::testing::Test {
 protected:
  PlanningAheadTest() {
    spec_.set_max_restarts(5);
    spec_.mutable_plan_options()->clear_num_stages();
    spec_.set_steps(1000);
    spec_.set_planner("graphpipe");
    spec_.set_num_devices(3);
    for (const char* worker : {"a", "b", "c"}) Connect(worker);
    job_ = harness_.Submit(spec_);
    const v1::Job job = harness_.Await(job_, v1::JOB_STATE_RUNNING);
    EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING) << job.message();
    harness_.Pump();
  }
  // The blocked pool must not outlive what it waits for.
  ~PlanningAheadTest() override {
    if (!free_.HasBeenNotified()) free_.Notify();
  }

  void Connect(const std::string& worker) {
    harness_.Connect(worker);
    FakeWorker& fake = harness_.Worker(worker);
    fake.silent_on = {Message::kStart};
    fake.total_steps = 1000;
  }
  static JobManagerOptions Counting(std::atomic<int>* searches) {
    JobManagerOptions options;
    // Searches of low priority may take as long as a busy machine likes.
    options.worker_timeout = absl::Hours(1);
    options.on_planned = [searches](auto&, auto&, double) { ++*searches; };
    return options;
  }
  // Seconds pass until so many searches have ended, the job's first one among them.
  void AwaitSearches(int count) {
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    while (searches_ < count && absl::Now() < deadline) {
      harness_.jobs->Tick(absl::Now());
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(searches_, count);
  }
  void Lose(const std::string& worker, const std::string& witness) {
    harness_.Disconnect(worker);
    v1::ConnectRequest failed;
    failed.mutable_failed()->set_job(job_);
    failed.mutable_failed()->set_generation(harness_.Get(job_).generation());
    failed.mutable_failed()->set_code(static_cast<int>(absl::StatusCode::kUnavailable));
    failed.mutable_failed()->set_message("its peer has gone");
    harness_.jobs->OnMessage(witness, failed);
    harness_.Pump();
  }
  bool WasPlannedAhead() const {
    const v1::Job job = harness_.Get(job_);
    return std::any_of(job.events().begin(), job.events().end(), [](const v1::Event& event) {
      return absl::StartsWith(event.message(), "planned ahead for ");
    });
  }

  std::atomic<int> searches_ = 0;
  absl::Notification free_;
  RecordingStore store_;
  JobHarness harness_{&store_, Counting(&searches_)};
  v1::JobSpec spec_ = SmallSpec();
  std::string job_;
};

TEST_F(PlanningAheadTest, AJobThatLosesAWorkerHasItsPlanAtOnce) {
  AwaitSearches(2);  // All losses leave devices that are alike.
  harness_.HoldPlanning(free_);
  Lose("b", "a");
  const v1::Job job = harness_.Get(job_);
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING) << job.message();
  EXPECT_THAT(job.devices(), ElementsAre("a/cpu0", "c/cpu0"));
  for (const v1::DeviceReport& device : job.plan().evaluation().devices())
    EXPECT_NE(device.name(), "b/cpu0");
  EXPECT_TRUE(WasPlannedAhead());
  // The next loss is planned for in the same way, and not waited for: the run has done a step.
  AwaitSearches(3);
  harness_.Step(job_, 1);
  Lose("a", "c");
  EXPECT_EQ(harness_.Get(job_).state(), v1::JOB_STATE_RUNNING);
  EXPECT_THAT(harness_.Get(job_).devices(), ElementsAre("c/cpu0"));
}

TEST_F(PlanningAheadTest, APlanByHandIsForTheDevicesThatItNames) {
  ASSERT_TRUE(harness_.jobs->Cancel(job_).ok());
  spec_.set_planner("manual");
  spec_.set_num_devices(2);
  spec_.mutable_plan_options()->set_manual(
      R"({"micro_batch": 4, "stages": [{"nodes": ["n0", "n1"], "devices": ["a/cpu0"]},
                                       {"nodes": ["*"], "devices": ["b/cpu0"]}]})");
  job_ = harness_.Submit(spec_);
  v1::Job job = harness_.Await(job_, v1::JOB_STATE_RUNNING);
  ASSERT_EQ(job.state(), v1::JOB_STATE_RUNNING) << job.message();
  harness_.Pump();
  ASSERT_THAT(job.devices(), ElementsAre("a/cpu0", "b/cpu0"));
  Lose("b", "a");  // What is left is like what it had.
  job = harness_.Get(job_);
  EXPECT_EQ(job.state(), v1::JOB_STATE_PENDING);
  EXPECT_THAT(job.message(), HasSubstr("waits for b/cpu0, which is not connected"));
  EXPECT_FALSE(WasPlannedAhead());
}

TEST_F(PlanningAheadTest, WhoHasComeMeanwhileIsPlannedForToo) {
  AwaitSearches(2);
  Connect("d");
  Lose("b", "a");
  const v1::Job job = harness_.Await(job_, v1::JOB_STATE_RUNNING);
  EXPECT_THAT(job.devices(), ElementsAre("a/cpu0", "c/cpu0", "d/cpu0"));
}

TEST_F(PlanningAheadTest, ASearchThatTheClockCutShortIsNotBegunAgain) {
  harness_.jobs->Suspend();
  std::atomic<int> searches = 0;
  JobManagerOptions options = Counting(&searches);
  options.planning_timeout = absl::Nanoseconds(1);
  JobHarness next(&store_, options);
  for (const char* worker : {"a", "b", "c"}) next.Connect(worker, {{job_, 1}});
  ASSERT_EQ(next.Get(job_).state(), v1::JOB_STATE_RUNNING);
  absl::Time now = absl::Now();
  const auto pass_second = [&] {
    now += absl::Seconds(1);
    next.Heartbeats(now);
    next.jobs->Tick(now);
  };
  const absl::Time deadline = now + absl::Seconds(60);
  while (searches < 1 && absl::Now() < deadline) {
    pass_second();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSERT_EQ(searches, 1);
  for (int second = 0; second < 100; ++second) pass_second();  // Three rounds.
  EXPECT_EQ(next.Get(job_).state(), v1::JOB_STATE_RUNNING);
  next.jobs.reset();  // Ends what was begun, which counts, too.
  EXPECT_EQ(searches, 1);
}

TEST_F(PlanningAheadTest, DevicesAfterALossAreThoseTheJobWouldBePlannedFor) {
  JobRecord record;
  record.job.number = 1;
  record.job.devices = {"a/cpu0", "b/cpu0", "c/cpu0"};
  const auto names = [&](const std::string& lost, std::vector<RegisteredDevice> connected) {
    std::vector<std::string> left;
    for (const RegisteredDevice& device : DevicesAfterLoss(record, lost, std::move(connected)))
      left.push_back(device.QualifiedName());
    return left;
  };
  std::vector<RegisteredDevice> connected = harness_.registry.Devices(/*free_only=*/false);
  for (RegisteredDevice& device : connected) device.job = record.job.name();
  auto request = FromProto(spec_);
  ASSERT_TRUE(request.ok());
  record.job.request = std::make_shared<const JobRequest>(*request);
  EXPECT_THAT(names("b", connected), ElementsAre("a/cpu0", "c/cpu0"));
  connected[2].job = "jobs/2";
  EXPECT_THAT(names("b", connected), ElementsAre("a/cpu0"));
  connected[2].job = "";
  EXPECT_THAT(names("b", connected), ElementsAre("a/cpu0", "c/cpu0"));
  connected[2].available = false;
  EXPECT_THAT(names("b", connected), ElementsAre("a/cpu0"));
  request->on_loss = LossPolicy::kWait;
  record.job.request = std::make_shared<const JobRequest>(*request);
  EXPECT_THAT(names("b", connected), IsEmpty());
}

}  // namespace
}  // namespace stagewright
