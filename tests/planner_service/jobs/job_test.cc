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
