// What is known of a job's steps, also when messages or the planner were lost on the way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/time/clock.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/job_harness.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using testing::JobHarness;
using testing::RecordingStore;
using testing::SmallSpec;
using Message = v1::ConnectResponse;

class JobStepsTest : public ::testing::Test {
 protected:
  JobStepsTest() : harness_(std::make_unique<JobHarness>(&store_)) {}

  // A running job whose workers say only what the test says. Worker a has device 0, b device 1.
  void Run(int max_restarts = 0) {
    for (const char* name : {"a", "b"}) {
      harness_->Connect(name);
      harness_->Worker(name).silent_on = {Message::kStart};
      harness_->Worker(name).total_steps = 100;
    }
    v1::JobSpec spec = SmallSpec();
    spec.set_steps(100);
    spec.set_max_restarts(max_restarts);
    job_ = harness_->Submit(spec);
    ASSERT_EQ(harness_->Await(job_, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
    harness_->Pump();
  }

  static int32_t DeviceOf(const std::string& worker) { return worker == "a" ? 0 : 1; }
  int64_t Generation() const { return harness_->Get(job_).generation(); }

  void Progress(const std::string& worker, int64_t step, double loss = 0.5) {
    v1::ConnectRequest message;
    v1::Progress* progress = message.mutable_progress();
    progress->set_job(job_);
    progress->set_generation(Generation());
    progress->set_step(step);
    v1::DeviceProgress* own = progress->add_devices();
    own->set_device(DeviceOf(worker));
    own->set_loss(loss);
    own->set_step_ns(worker == "a" ? 10 : 20);
    own->set_learning_rate(0.25);
    harness_->jobs->OnMessage(worker, message);
  }

  void SoFar(const std::string& worker, int64_t last, int64_t stride = 1) {
    v1::ConnectRequest message;
    v1::StepsSoFar* so_far = message.mutable_steps_so_far();
    so_far->set_job(job_);
    so_far->set_generation(Generation());
    v1::DeviceSteps* device = so_far->add_devices();
    device->set_device(DeviceOf(worker));
    device->set_stride(stride);
    for (int64_t number = 1; number <= last; number += stride) {
      v1::JobStep* step = device->add_steps();
      step->set_step(number);
      step->set_loss(0.5);
      step->set_step_ns(10);
      step->set_learning_rate(0.25);
    }
    harness_->jobs->OnMessage(worker, message);
  }

  std::vector<int64_t> Steps(int64_t after = 0) {
    const auto steps = harness_->jobs->Steps(job_, after);
    EXPECT_TRUE(steps.ok()) << steps.status();
    std::vector<int64_t> numbers;
    for (const v1::JobStep& step : steps->steps()) numbers.push_back(step.step());
    return numbers;
  }

  // Another planner process on the same store, killed instead of stopped if `killed`.
  void Restart(bool killed) {
    const int64_t generation = Generation();
    const auto before = store_.Entries();
    harness_->jobs->Suspend();
    harness_.reset();
    if (killed) store_.Replace(before);
    harness_ = std::make_unique<JobHarness>(&store_);
    for (const char* name : {"a", "b"}) harness_->Connect(name, {{job_, generation}});
    EXPECT_EQ(harness_->Get(job_).state(), v1::JOB_STATE_RUNNING);
  }

  RecordingStore store_;
  std::unique_ptr<JobHarness> harness_;
  std::string job_;
};

TEST_F(JobStepsTest, OfAJobThatEndedAreReadFromTheStore) {
  for (const char* name : {"a", "b"}) harness_->Connect(name);
  job_ = harness_->Submit(SmallSpec());
  ASSERT_EQ(harness_->Await(job_, v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);
  for (int round = 0; round < 2; ++round) {
    const auto steps = harness_->jobs->Steps(job_, 0);
    ASSERT_TRUE(steps.ok()) << steps.status();
    ASSERT_EQ(steps->steps_size(), 3);
    EXPECT_EQ(steps->stride(), 1);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(steps->steps(i).step(), i + 1);
      EXPECT_DOUBLE_EQ(steps->steps(i).loss(), 1.0);  // Two devices saw half of it each.
      EXPECT_EQ(steps->steps(i).step_ns(), 1'000'000 * (i + 1));
      EXPECT_DOUBLE_EQ(steps->steps(i).learning_rate(), 0.1);
    }
    EXPECT_THAT(Steps(2), ElementsAre(3));
    harness_ = std::make_unique<JobHarness>(&store_);
  }
  EXPECT_EQ(harness_->jobs->Steps("jobs/99", 0).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(harness_->jobs->Steps(job_, -1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(JobStepsTest, AStepCountsWhenAllDevicesHaveToldTheirShareOnce) {
  Run();
  Progress("a", 1, 0.25);
  Progress("a", 1, 0.25);
  EXPECT_THAT(Steps(), ElementsAre());
  Progress("b", 1, 0.5);
  const auto steps = harness_->jobs->Steps(job_, 0);
  ASSERT_EQ(steps->steps_size(), 1);
  EXPECT_DOUBLE_EQ(steps->steps(0).loss(), 0.75);
  EXPECT_EQ(steps->steps(0).step_ns(), 20);
}

TEST_F(JobStepsTest, WhatWasDroppedOnItsWayIsTakenFromTheStepsSoFar) {
  Run();
  for (const char* worker : {"a", "b"}) Progress(worker, 1);
  Progress("a", 2);
  for (const char* worker : {"a", "b"}) Progress(worker, 5);
  EXPECT_THAT(Steps(), ElementsAre(1, 5));
  const int64_t version = harness_->Get(job_).version();
  SoFar("a", 5);
  EXPECT_THAT(Steps(), ElementsAre(1, 5));
  SoFar("b", 4);
  EXPECT_THAT(Steps(), ElementsAre(1, 2, 3, 4, 5));
  const auto listed = harness_->jobs->Steps(job_, 0);
  ASSERT_TRUE(listed.ok());
  for (const v1::JobStep& step : listed->steps()) EXPECT_DOUBLE_EQ(step.loss(), 1.0) << step.step();
  // Watchers are told of nothing older than what they know.
  EXPECT_EQ(harness_->Get(job_).version(), version);
  EXPECT_EQ(harness_->Get(job_).metrics().step(), 5);
  SoFar("a", 7);
  SoFar("b", 7);
  EXPECT_EQ(harness_->Get(job_).metrics().step(), 7);
}

TEST_F(JobStepsTest, WorkersThatKnowFewerMakeAllEven) {
  Run();
  for (int64_t step = 1; step <= 4; ++step)
    for (const char* worker : {"a", "b"}) Progress(worker, step);
  SoFar("a", 13, 4);
  SoFar("b", 13, 2);
  EXPECT_THAT(Steps(), ElementsAre(1, 5, 9, 13));
  EXPECT_EQ(harness_->jobs->Steps(job_, 0)->stride(), 4);
}

TEST_F(JobStepsTest, APlannerThatIsStoppedKeepsThem) {
  Run();
  for (int64_t step = 1; step <= 4; ++step)
    for (const char* worker : {"a", "b"}) Progress(worker, step);
  Restart(/*killed=*/false);
  EXPECT_THAT(Steps(), ElementsAre(1, 2, 3, 4));
}

TEST_F(JobStepsTest, APlannerThatIsKilledHearsThemFromTheWorkers) {
  Run();
  for (int64_t step = 1; step <= 4; ++step)
    for (const char* worker : {"a", "b"}) Progress(worker, step);
  Restart(/*killed=*/true);
  EXPECT_THAT(Steps(), ElementsAre());
  Progress("a", 5);
  Progress("b", 5);
  for (const char* worker : {"a", "b"}) SoFar(worker, 5);
  EXPECT_THAT(Steps(), ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(JobStepsTest, AreWrittenFromTimeToTime) {
  Run();
  for (const char* worker : {"a", "b"}) Progress(worker, 1);
  harness_->jobs->Tick(absl::Now());
  EXPECT_EQ(store_.Read("steps/" + job_).status().code(), absl::StatusCode::kNotFound);
  harness_->jobs->Tick(absl::Now() + absl::Seconds(6));
  EXPECT_TRUE(store_.Read("steps/" + job_).ok());
  Restart(/*killed=*/true);
  EXPECT_THAT(Steps(), ElementsAre(1));
}

TEST_F(JobStepsTest, TheNextPlannerShowsTheLastStepAndCheckpointThatWereKept) {
  Run();
  for (int64_t step : {1, 2})
    for (const char* worker : {"a", "b"}) Progress(worker, step, /*loss=*/0.25);
  v1::ConnectRequest message;
  message.mutable_checkpoint_written()->set_job(job_);
  message.mutable_checkpoint_written()->set_generation(Generation());
  message.mutable_checkpoint_written()->set_step(2);
  harness_->jobs->OnMessage("a", message);
  harness_->jobs->Tick(absl::Now() + absl::Seconds(6));
  Restart(/*killed=*/true);
  const v1::Job job = harness_->Get(job_);
  EXPECT_EQ(job.metrics().step(), 2);
  EXPECT_DOUBLE_EQ(job.metrics().loss(), 0.5);
  EXPECT_EQ(job.checkpoint_step(), 2);
}

TEST_F(JobStepsTest, AJobThatStartsAgainRepeatsThoseAfterItsCheckpoint) {
  Run(/*max_restarts=*/1);
  for (int64_t step = 1; step <= 4; ++step)
    for (const char* worker : {"a", "b"}) Progress(worker, step);
  v1::ConnectRequest failed;
  failed.mutable_failed()->set_job(job_);
  failed.mutable_failed()->set_generation(Generation());
  failed.mutable_failed()->set_message("a peer is gone");
  harness_->Connect("c");
  harness_->Worker("c").silent_on = {Message::kStart};
  harness_->Worker("c").total_steps = 100;
  harness_->Disconnect("b");
  harness_->jobs->OnMessage("a", failed);
  ASSERT_EQ(harness_->Await(job_, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Generation(), 2);
  EXPECT_THAT(Steps(), ElementsAre());  // Nor does the store have those of before.
  for (const char* worker : {"a", "c"}) Progress(worker, 1, 2.0);
  EXPECT_THAT(Steps(), ElementsAre(1));  // It has no checkpoint.
  EXPECT_DOUBLE_EQ(harness_->jobs->Steps(job_, 0)->steps(0).loss(), 4.0);
  EXPECT_EQ(harness_->Get(job_).metrics().step(), 1);
}

}  // namespace
}  // namespace stagewright
