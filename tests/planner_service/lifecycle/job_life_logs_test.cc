// Whose lines of a log are taken, and what becomes of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "planner_service/lifecycle/job_manager.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/job_harness.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::JobHarness;
using testing::RecordingStore;
using testing::SmallSpec;

// Takes no logs while it is told so, as one without room for them.
class NarrowStore : public RecordingStore {
 public:
  absl::Status WriteIf(const std::vector<Condition>& conditions,
                       const std::vector<Mutation>& batch) override {
    for (const Mutation& mutation : batch) {
      if (narrow && absl::StartsWith(mutation.key, "logs/") && mutation.value.has_value())
        return absl::ResourceExhaustedError("no room");
    }
    return RecordingStore::WriteIf(conditions, batch);
  }
  bool narrow = false;
};

class JobLifeLogsTest : public ::testing::Test {
 protected:
  // A job on both workers, which runs until it is cancelled.
  std::string Run() {
    for (const char* name : {"a", "b"}) {
      harness_->Connect(name);
      harness_->Worker(name).silent_on = {v1::ConnectResponse::kStart};
    }
    v1::JobSpec spec = SmallSpec();
    spec.set_num_devices(2);
    const std::string job = harness_->Submit(spec);
    harness_->Await(job, v1::JOB_STATE_RUNNING);
    return job;
  }

  void Tell(const std::string& worker, const std::string& job, int64_t generation,
            const std::string& line) {
    v1::ConnectRequest message;
    v1::LogLines* lines = message.mutable_log_lines();
    lines->set_job(job);
    lines->set_generation(generation);
    v1::JobLogLine* added = lines->add_lines();
    added->set_time_ns(absl::ToUnixNanos(absl::Now()));
    added->set_message(line);
    harness_->jobs->OnMessage(worker, message);
  }

  v1::ListJobLogsResponse Logs(const std::string& job, int64_t after = 0) {
    return harness_->jobs->Logs(job, after).value();
  }

  // What workers told, "a: text".
  std::vector<std::string> Told(const std::string& job) {
    std::vector<std::string> told;
    const v1::ListJobLogsResponse log = Logs(job);
    for (const v1::JobLogLine& line : log.lines())
      if (!line.worker().empty()) told.push_back(line.worker() + ": " + line.message());
    return told;
  }

  NarrowStore store_;
  std::unique_ptr<JobHarness> harness_ = std::make_unique<JobHarness>(&store_);
};

TEST_F(JobLifeLogsTest, LinesAreTakenOfThoseWhoTakePart) {
  const std::string job = Run();
  harness_->Connect("stranger");
  Tell("a", job, 1, "first");
  Tell("stranger", job, 1, "of no part of it");
  Tell("a", job, 0, "of no run");
  Tell("a", job, 2, "of a run to come");
  Tell("a", "jobs/99", 1, "of no job");
  Tell("a", "", 1, "of nothing");
  Tell("b", job, 1, "second");
  EXPECT_THAT(Told(job), ElementsAre("a: first", "b: second"));
  EXPECT_EQ(Logs(job).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(harness_->Get(job).state(), v1::JOB_STATE_RUNNING);
}

TEST_F(JobLifeLogsTest, ThePlannerTellsWhatHappenedToTheJob) {
  const std::string job = Run();
  const v1::ListJobLogsResponse log = Logs(job);
  ASSERT_FALSE(log.lines().empty());
  EXPECT_EQ(log.lines(0).message(), "submitted");
  EXPECT_EQ(log.lines().rbegin()->message(), "job changed its state");
  EXPECT_EQ(log.lines().rbegin()->worker(), "");
  EXPECT_EQ(log.lines().rbegin()->generation(), 1);
  EXPECT_THAT(Logs(job, log.lines().rbegin()->position()).lines(), IsEmpty());
}

TEST_F(JobLifeLogsTest, WhoCalledIsNotShown) {
  const auto job = harness_->jobs->Submit(SmallSpec(), "once", "ipv4:10.0.0.7:4242");
  ASSERT_TRUE(job.ok());
  const v1::ListJobLogsResponse log = Logs(job->name());
  ASSERT_FALSE(log.lines().empty());
  EXPECT_EQ(log.lines(0).message(), "submitted");
  for (const v1::JobLogLine& line : log.lines()) {
    for (const v1::LogField& field : line.fields())
      EXPECT_TRUE(field.key() != "client" && field.key() != "request") << field.value();
  }
}

TEST_F(JobLifeLogsTest, TheyStayWithTheJobThatHasEnded) {
  const std::string job = Run();
  Tell("a", job, 1, "first");
  harness_->Worker("b").silent_on.insert(v1::ConnectResponse::kAbort);  // Its run ends late.
  ASSERT_TRUE(harness_->jobs->Cancel(job).ok());
  harness_->Pump();
  Tell("b", job, 1, "the cause, which it says last");
  Tell("a", job, 1, "of a run that it has ended");
  const std::vector<std::string> told = Told(job);
  EXPECT_THAT(told, ElementsAre("a: first", "b: the cause, which it says last"));
  v1::ListJobLogsResponse before = Logs(job);
  EXPECT_EQ(before.state(), v1::JOB_STATE_CANCELLED);

  harness_->PassUntil(absl::Now() + absl::Seconds(1));
  Tell("b", job, 1, "and one more");  // It has not ended its run.
  EXPECT_EQ(Told(job).size(), 3u);
  before = Logs(job);
  harness_->PassUntil(absl::Now() + absl::Seconds(15));  // It is in the store alone.
  Tell("b", job, 1, "when nobody waits for it any more");
  EXPECT_EQ(Logs(job).SerializeAsString(), before.SerializeAsString());
  harness_->jobs->Suspend();
  harness_ = std::make_unique<JobHarness>(&store_);
  EXPECT_EQ(Logs(job).SerializeAsString(), before.SerializeAsString());
  EXPECT_THAT(Logs(job, before.lines().rbegin()->position()).lines(), IsEmpty());

  ASSERT_TRUE(harness_->jobs->Delete(job).ok());
  EXPECT_EQ(harness_->jobs->Logs(job, 0).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(store_.Keys("logs/").value(), IsEmpty());
}

TEST_F(JobLifeLogsTest, LateLinesWaitWithTheirJobWhileNothingCanBeWritten) {
  const std::string job = Run();
  const std::string other = harness_->Submit(SmallSpec());
  harness_->Worker("b").silent_on.insert(v1::ConnectResponse::kAbort);  // Its run ends late.
  ASSERT_TRUE(harness_->jobs->Cancel(job).ok());
  harness_->Pump();
  Tell("b", job, 1, "the cause, which it says last");
  store_.FailWhen([&](const v1::Job& written) { return written.name() == other; });
  EXPECT_FALSE(harness_->jobs->Cancel(other).ok());
  harness_->PassUntil(absl::Now() + absl::Seconds(15));  // Nobody waits for its run any more.
  EXPECT_THAT(Told(job), ElementsAre("b: the cause, which it says last"));
  store_.FailWhen(nullptr);
  harness_->PassUntil(absl::Now() + absl::Seconds(30));
  EXPECT_THAT(Told(job), ElementsAre("b: the cause, which it says last"));
  harness_ = std::make_unique<JobHarness>(&store_);
  EXPECT_THAT(Told(job), ElementsAre("b: the cause, which it says last"));
}

TEST_F(JobLifeLogsTest, RoomThatOnlyTheyLackKeepsNoJobFromEnding) {
  const std::string job = Run();
  Tell("a", job, 1, "much");
  store_.narrow = true;
  ASSERT_TRUE(harness_->jobs->Cancel(job).ok());
  EXPECT_EQ(store_.State(job), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(harness_->Get(job).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_THAT(store_.Keys("logs/").value(), IsEmpty());
}

TEST_F(JobLifeLogsTest, WrongQuestionsAreNamed) {
  EXPECT_EQ(harness_->jobs->Logs("jobs/9", 0).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(harness_->jobs->Logs("jobs/9", -1).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stagewright
