#include "planner_service/lifecycle/path_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "absl/synchronization/notification.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/job_harness.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::JobHarness;
using testing::RecordingStore;
using testing::SmallSpec;

Job PlannedFor(const std::vector<std::string>& devices) {
  Job job;
  job.number = 7;
  job.state = JobState::kPlanning;
  job.devices = devices;
  return job;
}

v1::PathsChecked Missing(const std::string& job) {
  v1::PathsChecked answer;
  answer.set_job(job);
  answer.set_code(static_cast<int>(absl::StatusCode::kNotFound));
  answer.set_message("spec.data_path: /no: there is no file with samples of input \"x\"");
  return answer;
}

TEST(WorkersToAsk, AreThoseOfTheFirstRunOnceEach) {
  Job job = PlannedFor({"b/cpu0", "a/cpu0", "b/cpu1"});
  EXPECT_THAT(WorkersToAsk(job), ElementsAre("a", "b"));
  job.generation = 1;
  EXPECT_THAT(WorkersToAsk(job), IsEmpty());
}

TEST(PathsRefusal, CountsFromAWorkerOfTheJobBeforeItRuns) {
  Job job = PlannedFor({"a/cpu0"});
  EXPECT_EQ(PathsRefusal(job, "a", Missing("jobs/7")),
            "worker a: spec.data_path: /no: there is no file with samples of input \"x\"");
  EXPECT_FALSE(PathsRefusal(job, "b", Missing("jobs/7")).has_value());
  EXPECT_FALSE(PathsRefusal(job, "a", v1::PathsChecked()).has_value());
  for (const JobState state : {JobState::kPending, JobState::kStarting, JobState::kRunning}) {
    job.state = state;
    EXPECT_FALSE(PathsRefusal(job, "a", Missing("jobs/7")).has_value());
  }
  job.state = JobState::kWaitingForDevices;
  EXPECT_TRUE(PathsRefusal(job, "a", Missing("jobs/7")).has_value());
  job.generation = 1;
  EXPECT_FALSE(PathsRefusal(job, "a", Missing("jobs/7")).has_value());
}

TEST(PathsRefusal, WhatMayPassIsNoneOfAJobThatMayStartAgain) {
  v1::PathsChecked away = Missing("jobs/7");
  away.set_code(static_cast<int>(absl::StatusCode::kUnavailable));
  for (const int restarts : {0, 1}) {
    JobRequest request;
    request.max_restarts = restarts;
    Job job = PlannedFor({"a/cpu0"});
    job.request = std::make_shared<const JobRequest>(std::move(request));
    EXPECT_EQ(PathsRefusal(job, "a", away).has_value(), restarts == 0);
    EXPECT_TRUE(PathsRefusal(job, "a", Missing("jobs/7")).has_value());
  }
}

class PathChecksLifeTest : public ::testing::Test {
 protected:
  PathChecksLifeTest() {
    harness_.Connect("a");
    harness_.Connect("b");
  }
  void Say(const std::string& worker, const v1::PathsChecked& answer) {
    v1::ConnectRequest message;
    *message.mutable_paths_checked() = answer;
    harness_.jobs->OnMessage(worker, message);
  }

  RecordingStore store_;
  absl::Notification release_;
  JobHarness harness_{&store_};
};

TEST_F(PathChecksLifeTest, AJobWhosePathsAreWrongFailsWhileItsPlanIsSought) {
  harness_.HoldPlanning(release_);
  const std::string job = harness_.Submit(SmallSpec());
  EXPECT_EQ(harness_.Get(job).state(), v1::JOB_STATE_PLANNING);
  for (const char* worker : {"a", "b"})
    EXPECT_EQ(harness_.Heard(worker, v1::ConnectResponse::kCheckPaths), 1);
  Say("b", Missing(job));
  const v1::Job failed = harness_.Get(job);
  EXPECT_EQ(failed.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(failed.message(), ::testing::StartsWith("worker b: spec.data_path: /no"));
  EXPECT_EQ(failed.failure_code(), static_cast<int>(absl::StatusCode::kNotFound));
  release_.Notify();
}

TEST_F(PathChecksLifeTest, WhoDoesNotAnswerKeepsNoJobFromBeginning) {
  const std::string job = harness_.Submit(SmallSpec());
  EXPECT_EQ(harness_.Await(job, v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);
  Say("a", Missing(job));
  EXPECT_EQ(harness_.Get(job).state(), v1::JOB_STATE_SUCCEEDED);
}

}  // namespace
}  // namespace stagewright
