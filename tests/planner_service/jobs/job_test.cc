#include "planner_service/jobs/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(JobNumber, IsOfOurNamesOnly) {
  Job job;
  job.number = 7;
  EXPECT_EQ(job.name(), "jobs/7");
  EXPECT_EQ(JobNumber(job.name()), 7);
  for (const char* name : {"", "7", "jobs/", "jobs/x", "job/7", "jobs/07", "jobs/+7", "jobs/-7",
                           "jobs/7 ", "jobs/7\n", " jobs/7"})
    EXPECT_EQ(JobNumber(name), -1);
}

TEST(RunName, IsOfOneJobThoughNamesAreGivenAgain) {
  Job job;
  job.number = 7;
  job.create_time = absl::FromUnixNanos(0x18a3f);
  EXPECT_EQ(RunName(job), "jobs-7-18a3f");
  Job other = job;
  other.create_time += absl::Nanoseconds(1);
  EXPECT_NE(RunName(job), RunName(other));
}

TEST(JobState, WhatRunsIsOnWorkersAndHasNotEnded) {
  for (const JobState state :
       {JobState::kPending, JobState::kPlanning, JobState::kWaitingForDevices, JobState::kStarting,
        JobState::kRunning, JobState::kRecovering, JobState::kSucceeded, JobState::kFailed,
        JobState::kCancelled}) {
    EXPECT_TRUE(!Runs(state) || OnWorkers(state));
    EXPECT_TRUE(!OnWorkers(state) || !IsTerminal(state));
  }
  EXPECT_TRUE(OnWorkers(JobState::kStarting));
  EXPECT_FALSE(Runs(JobState::kStarting));
  EXPECT_TRUE(Runs(JobState::kRecovering));
}

TEST(Job, WarnsOnceOfEachThing) {
  Job job;
  for (const char* warning : {"a", "b", "a"}) job.Warn(warning);
  EXPECT_THAT(job.warnings, ::testing::ElementsAre("a", "b"));
}

}  // namespace
}  // namespace stagewright
