// Jobs and a store that fails: what is seen is what is stored.
#include "planner_service/records/job_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/error_details.h"
#include "planner_service/store/set_aside.h"
#include "tests/planner_service/jobs/recording_store.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/job_harness.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::JobHarness;
using testing::RecordingStore;
using testing::SmallSpec;
using Message = v1::ConnectResponse;

// Workers are never silent for too long here, and a start that is not answered is over soon.
JobManagerOptions Options() {
  JobManagerOptions options;
  options.worker_timeout = absl::Hours(24);
  options.starting_timeout = absl::Seconds(1);
  return options;
}

class JobRecordsTest : public ::testing::Test {
 protected:
  void Start() { harness_ = std::make_unique<JobHarness>(&store_, Options()); }
  void ConnectBoth() {
    for (const char* name : {"a", "b"}) harness_->Connect(name);
  }
  void AwaitTrouble() {
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    while (harness_->jobs->CheckWritable().ok()) {
      ASSERT_LT(absl::Now(), deadline);
      harness_->Pump();
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  static void ExpectRefused(const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("until the state can be written again"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("the disk is gone"));
    EXPECT_TRUE(DetailsOf(status).retry_after.has_value());
  }

  void ReplaceBlobs(const std::optional<std::string>& with) {
    const std::vector<std::string> blobs = store_.Keys("blobs/").value();
    for (const std::string& blob : blobs) ASSERT_EQ(store_.Write({{blob, with}}), absl::OkStatus());
  }

  RecordingStore store_;
  std::unique_ptr<JobHarness> harness_ = std::make_unique<JobHarness>(&store_, Options());
};

TEST_F(JobRecordsTest, WhatCannotBeStoredIsNeitherSeenNorActedOn) {
  struct Case {
    v1::JobState state;
    Message::MessageCase never;
  };
  for (const Case& c : {Case{v1::JOB_STATE_PLANNING, Message::kPrepare},
                        Case{v1::JOB_STATE_WAITING_FOR_DEVICES, Message::kPrepare},
                        Case{v1::JOB_STATE_STARTING, Message::kPrepare},
                        Case{v1::JOB_STATE_RUNNING, Message::kStart},
                        Case{v1::JOB_STATE_SUCCEEDED, Message::kRelease}}) {
    SCOPED_TRACE(v1::JobState_Name(c.state));
    Start();
    ConnectBoth();
    store_.FailWhen([&](const v1::Job& job) { return job.state() == c.state; });
    const std::string job = harness_->Submit(SmallSpec());
    AwaitTrouble();
    harness_->Pump();
    EXPECT_NE(harness_->Get(job).state(), c.state);
    EXPECT_EQ(harness_->Get(job).state(), store_.State(job));
    EXPECT_EQ(harness_->jobs->List(v1::ListJobsRequest())->jobs(0).state(), store_.State(job));
    for (const char* worker : {"a", "b"}) EXPECT_EQ(harness_->Heard(worker, c.never), 0);
    ExpectRefused(harness_->jobs->Submit(SmallSpec(), "").status());
    ExpectRefused(harness_->jobs->Cancel(job).status());
    harness_->jobs->Tick(absl::Now() + absl::Hours(1));
    EXPECT_EQ(harness_->Get(job).state(), store_.State(job)) << "nor is time lost by waiting";

    store_.FailWhen(nullptr);
    harness_->jobs->Tick(absl::Now() + absl::Hours(2));
    EXPECT_EQ(harness_->jobs->CheckWritable(), absl::OkStatus());
    EXPECT_EQ(harness_->Await(job, v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);
    EXPECT_FALSE(harness_->announced_before_stored);
    const std::string next = harness_->Submit(SmallSpec());
    EXPECT_EQ(harness_->Await(next, v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);
    store_.Clear();
  }
}

TEST_F(JobRecordsTest, APlannerAfterOneThatCouldNotStoreGoesOnFromWhatWasSeen) {
  ConnectBoth();
  store_.FailWhen([](const v1::Job& job) { return job.state() == v1::JOB_STATE_SUCCEEDED; });
  const std::string job = harness_->Submit(SmallSpec());
  AwaitTrouble();
  const v1::Job seen = harness_->Get(job);
  EXPECT_EQ(seen.state(), v1::JOB_STATE_RUNNING);
  const auto stored = store_.Entries();  // As the planner's machine dies now.
  harness_.reset();
  store_.Replace(stored);
  store_.FailWhen(nullptr);
  Start();
  EXPECT_EQ(harness_->Get(job).state(), v1::JOB_STATE_RECOVERING);
}

TEST_F(JobRecordsTest, AFullStoreAtTheStartKeepsNoJobFromGoingOn) {
  const std::string job = harness_->Submit(SmallSpec());
  harness_.reset();
  store_.FailWhen([](const v1::Job&) { return true; });
  Start();
  EXPECT_EQ(harness_->Get(job).state(), v1::JOB_STATE_PENDING);
  ConnectBoth();
  ExpectRefused(harness_->jobs->Submit(SmallSpec(), "").status());
  store_.FailWhen(nullptr);
  harness_->jobs->Tick(absl::Now() + absl::Minutes(1));
  EXPECT_EQ(harness_->Await(job, v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobRecordsTest, ACancellationThatCannotBeStoredSaysSoAndComesLater) {
  const std::string job = harness_->Submit(SmallSpec());
  store_.FailWhen([](const v1::Job&) { return true; });
  const absl::Status cancelled = harness_->jobs->Cancel(job).status();
  EXPECT_EQ(cancelled.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(cancelled.message()), HasSubstr("as soon as the state can be written"));
  EXPECT_EQ(harness_->Get(job).state(), v1::JOB_STATE_PENDING);
  store_.FailWhen(nullptr);
  harness_->jobs->Tick(absl::Now() + absl::Minutes(1));
  EXPECT_EQ(harness_->Get(job).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(store_.State(job), v1::JOB_STATE_CANCELLED);
}

TEST_F(JobRecordsTest, AJobThatThereIsNoRoomForKeepsNoOtherWaiting) {
  for (const char* name : {"a", "b", "c", "d"}) {
    harness_->Connect(name);
    harness_->Worker(name).silent_on = {Message::kStart};
  }
  const auto running = [&] {
    std::string job = harness_->Submit(SmallSpec());
    EXPECT_EQ(harness_->Await(job, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
    return job;
  };
  const std::string first = running(), second = running();
  harness_.reset();
  store_.FailWhen([](const v1::Job&) { return true; }, absl::StatusCode::kResourceExhausted);
  Start();  // Both recover, unstored.
  for (const std::string& job : {first, second})
    EXPECT_EQ(store_.State(job), v1::JOB_STATE_RUNNING);
  store_.FailWhen([&](const v1::Job& job) { return job.name() == first; },
                  absl::StatusCode::kResourceExhausted);
  harness_->jobs->Tick(absl::Now() + absl::Seconds(1));
  EXPECT_EQ(store_.State(first), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(harness_->Get(second).state(), v1::JOB_STATE_RECOVERING);
  EXPECT_FALSE(harness_->jobs->CheckWritable().ok());
  store_.FailWhen(nullptr);
  harness_->jobs->Tick(absl::Now() + absl::Seconds(5));
  EXPECT_EQ(harness_->Get(first).state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(harness_->jobs->CheckWritable(), absl::OkStatus());
}

TEST_F(JobRecordsTest, AJobThatCannotBeStoredIsNotTaken) {
  store_.FailWhen([](const v1::Job&) { return true; });
  EXPECT_EQ(harness_->jobs->Submit(SmallSpec(), "id").status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(harness_->jobs->CheckWritable().code(), absl::StatusCode::kUnavailable)
      << "whoever watches the planner hears of it, too";
  store_.FailWhen(nullptr);
  EXPECT_EQ(harness_->Submit(SmallSpec(), "id"), "jobs/1");
  harness_->jobs->Tick(absl::Now() + absl::Minutes(1));
  EXPECT_EQ(harness_->jobs->CheckWritable(), absl::OkStatus());
}

TEST_F(JobRecordsTest, EndedJobsAreShownWholeFromTheStore) {
  ConnectBoth();
  const std::string job = harness_->Submit(SmallSpec());
  const v1::Job running = harness_->Await(job, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(harness_->Await(job, v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);
  for (const bool restarted : {false, true}) {
    if (restarted) {
      harness_.reset();
      Start();
    }
    const v1::Job ended = harness_->Get(job);
    EXPECT_EQ(ended.plan().SerializeAsString(), running.plan().SerializeAsString());
    EXPECT_EQ(ended.spec().SerializeAsString(), running.spec().SerializeAsString());
    uint64_t told = 0;
    absl::Notification shown;
    const auto watch = harness_->jobs->Watch(job, [&](const auto& seen) {
      told = seen->plan().fingerprint();
      shown.Notify();
    });
    ASSERT_TRUE(watch.ok());
    ASSERT_TRUE(shown.WaitForNotificationWithTimeout(absl::Seconds(30)));
    harness_->jobs->Unwatch(*watch);
    EXPECT_EQ(told, running.plan().fingerprint());
  }
  ReplaceBlobs(std::nullopt);
  EXPECT_EQ(harness_->jobs->Get(job).status().code(), absl::StatusCode::kDataLoss)
      << "nothing of it is in memory";
  EXPECT_EQ(harness_->jobs->List(v1::ListJobsRequest())->jobs(0).name(), job);
}

TEST_F(JobRecordsTest, JobsWithOneGraphShareIt) {
  harness_->Submit(SmallSpec());
  const size_t blobs = store_.Keys("blobs/")->size();
  harness_->Submit(SmallSpec());
  EXPECT_EQ(store_.Keys("blobs/")->size(), blobs);
  EXPECT_LT(store_.Read("jobs/000000000002")->size(), 2000u);
}

TEST_F(JobRecordsTest, AJobWithoutItsGraphIsSetAside) {
  harness_->Submit(SmallSpec());
  harness_.reset();
  ReplaceBlobs("damaged");
  Start();
  EXPECT_THAT(harness_->jobs->notes(), ElementsAre(HasSubstr("jobs/1 is damaged")));
}

TEST_F(JobRecordsTest, DamagedJobsKeepNobodyFromTheOthers) {
  for (int i = 0; i < 3; ++i) harness_->Submit(SmallSpec());
  harness_.reset();
  std::map<std::string, std::string> entries = store_.Entries();
  entries["jobs/000000000002"] = entries["jobs/000000000001"];  // Another job's.
  entries["jobs/000000000003"] = "\xff\xff damaged";
  store_.Replace(entries);
  Start();
  EXPECT_THAT(harness_->jobs->notes(),
              ElementsAre(HasSubstr("jobs/2 is damaged"), HasSubstr("jobs/3 is damaged")));
  EXPECT_EQ(harness_->Get("jobs/1").state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(harness_->jobs->Get("jobs/2").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(KeysSetAside(store_).value(), ElementsAre("jobs/000000000002", "jobs/000000000003"));
  Start();
  EXPECT_THAT(harness_->jobs->notes(), IsEmpty());
  EXPECT_EQ(harness_->Submit(SmallSpec()), "jobs/4") << "names are never used again";
}

TEST_F(JobRecordsTest, AJobGoesOnWithoutItsDamagedSteps) {
  ConnectBoth();
  harness_->Worker("b").silent_on = {v1::ConnectResponse::kConnectPeers};
  const std::string job = harness_->Submit(SmallSpec());
  ASSERT_EQ(harness_->Await(job, v1::JOB_STATE_STARTING).generation(), 1);
  harness_.reset();
  ASSERT_EQ(store_.Write({{"steps/jobs/1", "\xff\xff"}}), absl::OkStatus());
  Start();
  EXPECT_THAT(harness_->jobs->notes(), ElementsAre(HasSubstr("steps/jobs/1 is damaged")));
  ConnectBoth();
  EXPECT_EQ(harness_->Await(job, v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);
}

}  // namespace
}  // namespace stagewright
