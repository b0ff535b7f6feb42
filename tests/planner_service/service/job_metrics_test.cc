#include "planner_service/service/job_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class JobSeriesTest : public ::testing::Test {
 protected:
  // The lines of the page that begin with `name`.
  std::string Lines(const std::string& name) {
    std::string lines;
    for (absl::string_view line :
         absl::StrSplit(prometheus::TextSerializer().Serialize(registry_.Collect()), '\n')) {
      if (absl::StartsWith(line, name)) absl::StrAppend(&lines, line, "\n");
    }
    return lines;
  }

  Job Moved(Job job, JobState state) {
    job.state = state;
    series_.Observe(job);
    return job;
  }

  Job NewJob(int64_t number) {
    Job job;
    job.number = number;
    job.create_time = absl::Now();
    series_.Observe(job);
    return job;
  }

  prometheus::Registry registry_;
  JobSeries series_{registry_};
};

TEST_F(JobSeriesTest, CountsOutcomesByCause) {
  Moved(Moved(NewJob(1), JobState::kRunning), JobState::kSucceeded);
  Moved(Moved(NewJob(2), JobState::kRecovering), JobState::kFailed);
  Moved(Moved(NewJob(3), JobState::kPlanning), JobState::kFailed);
  Job refused = Moved(NewJob(4), JobState::kRunning);
  refused.failure_code = static_cast<int32_t>(absl::StatusCode::kResourceExhausted);
  Moved(refused, JobState::kFailed);
  Moved(NewJob(5), JobState::kCancelled);
  const std::string lines = Lines("stagewright_planner_jobs_ended_total");
  for (const char* series :
       {R"({cause="",outcome="succeeded"} 1)", R"({cause="",outcome="cancelled"} 1)",
        R"({cause="worker_lost",outcome="failed"} 1)", R"({cause="planning",outcome="failed"} 1)",
        R"({cause="resource_exhausted",outcome="failed"} 1)"})
    EXPECT_THAT(lines, HasSubstr(series));
  EXPECT_THAT(Lines("stagewright_planner_jobs{"), HasSubstr("{state=\"failed\"} 3"));
}

// Prometheus sees no increase in a counter whose first value is 1: alerts would miss the first.
TEST_F(JobSeriesTest, WhatAlertsCountBeginsAtZero) {
  for (const EventKind kind :
       {EventKind::kWorkerLost, EventKind::kRestarted, EventKind::kStoreFailed,
        EventKind::kCheckpointFailed, EventKind::kStragglerGone}) {
    EXPECT_THAT(Lines("stagewright_planner_job_events_total"),
                HasSubstr(absl::StrCat("{kind=\"", EventKindName(kind), "\"} 0\n")));
  }
  EXPECT_THAT(Lines("stagewright_planner_worker_events_total"),
              HasSubstr("{kind=\"worker_lost\"} 0\n"));
  for (const char* cause :
       {"worker_lost", "planning", "starting", "other", "cancelled", "unauthenticated"}) {
    EXPECT_THAT(Lines("stagewright_planner_jobs_ended_total"),
                HasSubstr(absl::StrCat("{cause=\"", cause, "\",outcome=\"failed\"} 0\n")));
  }
}

TEST_F(JobSeriesTest, CountsWhatJobsWaitFor) {
  Job first = NewJob(1), second = NewJob(2);
  const auto wait = [&](Job& job, const char* reason) {
    job.waits_for = reason;
    series_.Observe(job);
  };
  wait(first, "devices");
  wait(second, "devices");
  wait(second, "quota");
  EXPECT_THAT(Lines("stagewright_planner_queued_jobs{"), HasSubstr("{reason=\"devices\"} 1"));
  EXPECT_THAT(Lines("stagewright_planner_queued_jobs{"), HasSubstr("{reason=\"quota\"} 1"));
  wait(first, "");
  wait(second, "");
  EXPECT_THAT(Lines("stagewright_planner_queued_jobs{"), HasSubstr("{reason=\"quota\"} 0"));
  for (const char* reason : {"devices", "quota"}) {
    EXPECT_THAT(Lines("stagewright_planner_queue_seconds_total{"),
                HasSubstr(absl::StrCat("{reason=\"", reason, "\"} ")));
  }
}

TEST_F(JobSeriesTest, JobsFoundEndedAreNotCountedAgain) {
  series_.AddEnded(JobState::kSucceeded, 3);
  EXPECT_THAT(Lines("stagewright_planner_jobs_ended_total"),
              HasSubstr(R"({cause="",outcome="succeeded"} 0)"));
  EXPECT_THAT(Lines("stagewright_planner_jobs{"), HasSubstr("{state=\"succeeded\"} 3"));
  Moved(Moved(NewJob(4), JobState::kRunning), JobState::kSucceeded);
  EXPECT_THAT(Lines("stagewright_planner_jobs{"), HasSubstr("{state=\"succeeded\"} 4"));
  series_.AddEnded(JobState::kSucceeded, -1);
  EXPECT_THAT(Lines("stagewright_planner_jobs{"), HasSubstr("{state=\"succeeded\"} 3"));
}

TEST_F(JobSeriesTest, AgesOfProgressAndCheckpointCountFromTheBeginning) {
  Job job = NewJob(1);
  auto request = std::make_shared<JobRequest>();
  request->training.checkpoints.emplace();
  job.request = request;
  const double before = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  job = Moved(job, JobState::kRunning);
  const auto value = [&](const std::string& name) {
    const std::string line = Lines(name + "{job=\"jobs/1\"}");
    double number = 0;
    EXPECT_TRUE(absl::SimpleAtod(
        line.substr(line.rfind(' ') + 1, line.size() - line.rfind(' ') - 2), &number))
        << line;
    return number;
  };
  EXPECT_GE(value("stagewright_planner_job_progress_timestamp_seconds"), before - 0.01);
  EXPECT_GE(value("stagewright_planner_job_checkpoint_timestamp_seconds"), before - 0.01);
  job.checkpoint_time = absl::Now() + absl::Seconds(5);
  job.metrics.step = 1;
  job.metrics.loss = std::numeric_limits<double>::quiet_NaN();
  job = Moved(job, JobState::kRunning);
  EXPECT_GE(value("stagewright_planner_job_checkpoint_timestamp_seconds"), before + 4);
  EXPECT_THAT(Lines("stagewright_planner_job_loss"), HasSubstr("Nan"));
  Moved(job, JobState::kCancelled);
  EXPECT_THAT(Lines("stagewright_planner_job_"), Not(HasSubstr("jobs/1")));
}

TEST_F(JobSeriesTest, StragglersHaveSeriesWhileTheyAre) {
  Job job = Moved(NewJob(1), JobState::kRunning);
  const std::string name = "stagewright_planner_job_straggler_ratio{";
  EXPECT_EQ(Lines(name), "");
  job.stragglers = {{"w0/cpu0", 0, 1.5}, {"w1/cpu0", 1, 2.5}};
  Moved(job, JobState::kRunning);
  EXPECT_THAT(Lines(name), HasSubstr(R"({device="w0/cpu0",job="jobs/1"} 1.5)"));
  EXPECT_THAT(Lines(name), HasSubstr(R"({device="w1/cpu0",job="jobs/1"} 2.5)"));
  job.stragglers = {{"w1/cpu0", 1, 2.25}};
  Moved(job, JobState::kRunning);
  EXPECT_EQ(Lines(name), name + R"(device="w1/cpu0",job="jobs/1"} 2.25)" + "\n");
  job.stragglers.clear();
  Moved(job, JobState::kSucceeded);
  EXPECT_EQ(Lines(name), "");
}

TEST_F(JobSeriesTest, TheWaitForDevicesIsCountedOnce) {
  Job job = NewJob(1);
  job = Moved(job, JobState::kStarting);
  job = Moved(job, JobState::kPending);  // A worker was lost.
  Moved(job, JobState::kStarting);
  EXPECT_THAT(Lines("stagewright_planner_job_wait_seconds_count"), HasSubstr(" 1\n"));
}

TEST_F(JobSeriesTest, EventsOfJobsAndWorkersAreToldApart) {
  Job job;
  job.number = 7;
  series_.Count(job.EventOf(EventKind::kRestarted, "a worker was lost"));
  Event event;
  event.kind = EventKind::kWorkerLost;
  event.worker = "w0";
  series_.Count(event);
  EXPECT_THAT(Lines("stagewright_planner_job_events_total"), HasSubstr("{kind=\"restarted\"} 1"));
  EXPECT_THAT(Lines("stagewright_planner_worker_events_total"),
              HasSubstr("{kind=\"worker_lost\"} 1"));
  EXPECT_THAT(Lines("stagewright_planner_job_events_total"), HasSubstr("{kind=\"worker_lost\"} 0"));
}

}  // namespace
}  // namespace stagewright
