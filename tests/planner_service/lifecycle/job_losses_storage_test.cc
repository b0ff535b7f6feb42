// Disks that are full and file systems that do not answer: a job that may start again waits for
// them, and says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "planner_service/lifecycle/job_losses.h"
#include "planner_service/runs/setbacks.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/job_harness.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT
using ::testing::HasSubstr;
using Message = v1::ConnectResponse;

constexpr int kUnavailable = static_cast<int>(absl::StatusCode::kUnavailable);
constexpr char kFull[] = "out/stagewright-job.json: cannot write: No space left on device";

// Workers a and b of a device each.
class JobLossesStorageTest : public ::testing::Test {
 protected:
  JobLossesStorageTest() {
    spec_.set_max_restarts(1);
    spec_.mutable_checkpoints()->set_every_steps(10);
    spec_.mutable_plan_options()->clear_num_stages();
    spec_.set_steps(1000);
    spec_.set_num_devices(2);
    spec_.set_planner("graphpipe");
  }

  // A job whose workers prepare its runs, or are silent then.
  void Submit(bool prepares) {
    for (const char* name : {"a", "b"}) harness_.Connect(name);
    Prepare(prepares);
    job_ = harness_.Submit(spec_);
  }
  void Prepare(bool prepares) {
    for (const char* name : {"a", "b"}) {
      harness_.Worker(name).silent_on = {prepares ? Message::kStart : Message::kPrepare};
      harness_.Worker(name).total_steps = 1000;
    }
  }
  // That run ends since worker a has no room.
  void FailForRoom(int run, v1::JobState state) {
    ASSERT_EQ(harness_.Await(job_, state).state(), state) << Job().message();
    ASSERT_EQ(Job().generation(), run);
    harness_.Pump();
    v1::ConnectRequest message;
    message.mutable_failed()->set_job(job_);
    message.mutable_failed()->set_generation(run);
    message.mutable_failed()->set_code(kUnavailable);
    message.mutable_failed()->set_message(kFull);
    message.mutable_failed()->set_storage(true);
    harness_.jobs->OnMessage("a", message);
    Pass(kLossIsKnownWithin + absl::Seconds(0.5));
    harness_.Pump();
  }
  void Pass(absl::Duration time) {
    later_ += time;
    harness_.PassUntil(absl::Now() + later_);
  }
  v1::Job Job() const { return harness_.Get(job_); }

  RecordingStore store_;
  JobHarness harness_{&store_};
  v1::JobSpec spec_ = SmallSpec();
  std::string job_;
  absl::Duration later_;
};

TEST_F(JobLossesStorageTest, AJobThatCannotBeginForWantOfRoomWaitsForIt) {
  Submit(/*prepares=*/false);
  constexpr int kRuns = 2 * kMostAlike;
  for (int run = 1; run <= kRuns; ++run) {
    FailForRoom(run, v1::JOB_STATE_STARTING);
    EXPECT_EQ(Job().restarts(), 0);
    // The first one is followed at once.
    EXPECT_THAT(Job().message(), HasSubstr(run == 1 ? "" : absl::StrCat("worker a: ", kFull)));
    if (run == kRuns) Prepare(true);
    Pass(kLongestBackOff);
  }
  EXPECT_EQ(harness_.Await(job_, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING)
      << Job().message();
}

TEST_F(JobLossesStorageTest, OneThatHasUsedUpItsRestartsWaitsForRoomAllTheSame) {
  Submit(/*prepares=*/true);
  harness_.Await(job_, v1::JOB_STATE_RUNNING);
  harness_.Step(job_, 20);
  Prepare(false);
  FailForRoom(1, v1::JOB_STATE_RUNNING);  // As at the end of training.
  EXPECT_EQ(Job().restarts(), 1);
  FailForRoom(2, v1::JOB_STATE_STARTING);
  EXPECT_EQ(Job().restarts(), 1);
  Prepare(true);
  Pass(kLongestBackOff);
  EXPECT_EQ(harness_.Await(job_, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING)
      << Job().message();
  FailForRoom(3, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Job().state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Job().message(), HasSubstr(kFull));
}

TEST_F(JobLossesStorageTest, AFullDiskAfterTheSameStepIsNoLoop) {
  spec_.set_max_restarts(100);
  Submit(/*prepares=*/true);
  for (int run = 1; run <= kMostAlike + 1; ++run) {
    FailForRoom(run, v1::JOB_STATE_RUNNING);
    EXPECT_EQ(Job().restarts(), run);
    Pass(kLongestBackOff);
  }
}

TEST_F(JobLossesStorageTest, WithoutRestartsItFailsAndSaysWhy) {
  spec_.set_max_restarts(0);
  Submit(/*prepares=*/false);
  FailForRoom(1, v1::JOB_STATE_STARTING);
  EXPECT_EQ(Job().state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Job().message(), HasSubstr(kFull));
}

}  // namespace
}  // namespace stagewright
