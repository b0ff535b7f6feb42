// The planner itself stands still for a while: stopped by a signal, on a machine that sleeps, or
// waiting for its store.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "planner_service/lifecycle/job_manager.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/job_harness.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT
using Message = v1::ConnectResponse;

class JobManagerStallsTest : public ::testing::Test {
 protected:
  // A job on a and b that stays in `state`.
  std::string JobIn(v1::JobState state) {
    for (const char* name : {"a", "b"}) {
      harness_.Connect(name);
      harness_.Worker(name).silent_on = {state == v1::JOB_STATE_STARTING ? Message::kConnectPeers
                                                                         : Message::kStart};
    }
    std::string job = harness_.Submit(SmallSpec());
    EXPECT_EQ(harness_.Await(job, state).state(), state);
    harness_.Pump();
    return job;
  }

  RecordingStore store_;
  JobHarness harness_{&store_};
};

TEST_F(JobManagerStallsTest, NobodyIsTakenForLost) {
  const std::string job = JobIn(v1::JOB_STATE_RUNNING);
  const absl::Time begin = absl::Now();
  harness_.jobs->Tick(begin);
  harness_.jobs->Tick(begin + absl::Seconds(30));
  EXPECT_TRUE(harness_.registry.Connected("a"));
  EXPECT_TRUE(harness_.registry.Connected("b"));
  EXPECT_EQ(harness_.Get(job).state(), v1::JOB_STATE_RUNNING);
  // Silence while it was there counts.
  for (absl::Time now = begin + absl::Seconds(30); now < begin + absl::Seconds(42);
       now += absl::Milliseconds(500)) {
    harness_.registry.Heartbeat("a", harness_.Worker("a").session, now);
    harness_.jobs->Tick(now);
  }
  EXPECT_TRUE(harness_.registry.Connected("a"));
  EXPECT_FALSE(harness_.registry.Connected("b"));
  EXPECT_EQ(harness_.Get(job).state(), v1::JOB_STATE_RECOVERING);
}

TEST_F(JobManagerStallsTest, NoStartIsTakenForLate) {
  const std::string job = JobIn(v1::JOB_STATE_STARTING);
  const absl::Time begin = absl::Now(), after = begin + absl::Minutes(10);
  harness_.jobs->Tick(begin);
  harness_.Heartbeats(after);
  harness_.jobs->Tick(after);
  EXPECT_EQ(harness_.Get(job).state(), v1::JOB_STATE_STARTING);
  harness_.PassUntil(after + absl::Seconds(115));
  EXPECT_EQ(harness_.Get(job).state(), v1::JOB_STATE_STARTING);
  harness_.PassUntil(after + absl::Seconds(125));
  EXPECT_EQ(harness_.Get(job).state(), v1::JOB_STATE_FAILED);
}

TEST_F(JobManagerStallsTest, WhatIsWaitedForSinceThenIsNotWaitedForAsLong) {
  const std::string job = JobIn(v1::JOB_STATE_RUNNING);
  const absl::Time begin = absl::Now(), after = begin + absl::Hours(8);
  harness_.jobs->Tick(begin);
  harness_.Disconnect("b");  // Before the next tick.
  harness_.Heartbeats(after);
  harness_.jobs->Tick(after);
  EXPECT_EQ(harness_.Get(job).state(), v1::JOB_STATE_RECOVERING);
  harness_.PassUntil(after + absl::Minutes(2));
  EXPECT_EQ(harness_.Get(job).state(), v1::JOB_STATE_FAILED);
}

TEST_F(JobManagerStallsTest, WhoeverWakesFirstCatchesUp) {
  const std::string job = JobIn(v1::JOB_STATE_RUNNING);
  harness_.jobs->Tick(absl::Now() - absl::Minutes(10));
  harness_.Disconnect("b");
  EXPECT_EQ(harness_.Get(job).state(), v1::JOB_STATE_RECOVERING);
  // What is waited for since then is waited for as long as ever.
  harness_.PassUntil(absl::Now() + absl::Seconds(20));
  EXPECT_EQ(harness_.Get(job).state(), v1::JOB_STATE_FAILED);
}

TEST(JobManagerStalls, NorIsWhatACallerSetsGoing) {
  JobManagerOptions options;
  options.starting_timeout = absl::Seconds(20);
  for (const char* call : {"submit", "cancel", "open"}) {
    RecordingStore store;
    JobHarness harness(&store, options);
    for (const char* name : {"a", "b"}) {
      harness.Connect(name);
      harness.Worker(name).silent_on = {Message::kConnectPeers};
    }
    v1::SetWorkerAvailabilityRequest worker;
    worker.set_name("b");
    worker.set_availability(v1::WORKER_AVAILABILITY_CORDONED);
    std::string first;
    if (call == absl::string_view("cancel")) first = harness.Submit(SmallSpec());
    if (call == absl::string_view("open")) {
      ASSERT_TRUE(harness.jobs->SetAvailability(worker).ok());
    }
    std::string job = call == absl::string_view("submit") ? "" : harness.Submit(SmallSpec());
    harness.jobs->Tick(absl::Now() - absl::Minutes(10));
    if (job.empty()) job = harness.Submit(SmallSpec());
    if (!first.empty()) {
      ASSERT_TRUE(harness.jobs->Cancel(first).ok());
    }
    if (call == absl::string_view("open")) {
      worker.set_availability(v1::WORKER_AVAILABILITY_OPEN);
      ASSERT_TRUE(harness.jobs->SetAvailability(worker).ok());
    }
    EXPECT_EQ(harness.Await(job, v1::JOB_STATE_STARTING).state(), v1::JOB_STATE_STARTING) << call;
    harness.Pump();
    harness.PassUntil(absl::Now() + absl::Seconds(25));
    EXPECT_EQ(harness.Get(job).state(), v1::JOB_STATE_FAILED) << call;
  }
}

TEST_F(JobManagerStallsTest, IsToldOfOnceForAsLongAsTicksAreSlow) {
  const auto told = [&] {
    const std::string logged = ::testing::internal::GetCapturedStderr();
    int count = 0;
    for (size_t at = 0; (at = logged.find("stood still", at)) != std::string::npos; ++at) ++count;
    ::testing::internal::CaptureStderr();
    return count;
  };
  absl::Time now = absl::Now();
  harness_.jobs->Tick(now);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 5; ++i) harness_.jobs->Tick(now += absl::Seconds(3));
  EXPECT_EQ(told(), 1);
  for (int i = 0; i < 30; ++i) harness_.jobs->Tick(now += absl::Milliseconds(500));
  EXPECT_EQ(told(), 0);
  harness_.jobs->Tick(now + absl::Seconds(3));
  EXPECT_EQ(told(), 1);
  ::testing::internal::GetCapturedStderr();
}

// Does not answer while it is stuck, as one on another machine.
class StuckStore : public RecordingStore {
 public:
  absl::StatusOr<std::string> Read(const std::string& key) const override {
    {
      absl::MutexLock lock(&mutex_);
      asked_ += stuck_;
      mutex_.Await(absl::Condition(
          +[](bool* stuck) { return !*stuck; }, &stuck_));
    }
    return RecordingStore::Read(key);
  }
  void SetStuck(bool stuck) {
    absl::MutexLock lock(&mutex_);
    stuck_ = stuck;
  }
  // Whether so many are waiting for an answer before long.
  bool AwaitAsked(int count) const {
    absl::MutexLock lock(&mutex_);
    const auto asked = [&] { return asked_ >= count; };
    return mutex_.AwaitWithTimeout(absl::Condition(&asked), absl::Seconds(60));
  }

 private:
  mutable absl::Mutex mutex_;
  mutable bool stuck_ = false;
  mutable int asked_ = 0;
};

TEST(JobManagerReads, WhoAsksForAJobThatHasEndedKeepsNobodyWaiting) {
  StuckStore store;
  JobHarness harness(&store);
  for (const char* name : {"a", "b"}) harness.Connect(name);
  const std::string job = harness.Submit(SmallSpec());
  ASSERT_EQ(harness.Await(job, v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);
  store.SetStuck(true);
  auto whole = std::async(std::launch::async, [&] { return harness.jobs->Get(job); });
  auto steps = std::async(std::launch::async, [&] { return harness.jobs->Steps(job, 0); });
  auto trace = std::async(std::launch::async, [&] { return harness.jobs->Trace(job); });
  EXPECT_TRUE(store.AwaitAsked(3));
  auto next = std::async(std::launch::async, [&] { return harness.Submit(SmallSpec()); });
  EXPECT_EQ(next.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  store.SetStuck(false);
  EXPECT_TRUE(whole.get()->has_plan());
  EXPECT_EQ(steps.get()->steps_size(), 3);
  EXPECT_EQ(trace.get()->measured_size(), 6);
}

TEST(JobManagerReads, AJobThatIsDeletedWhileItIsReadIsNotFound) {
  StuckStore store;
  JobHarness harness(&store);
  const std::string job = harness.Submit(SmallSpec());
  ASSERT_TRUE(harness.jobs->Cancel(job).ok());
  store.SetStuck(true);
  auto whole = std::async(std::launch::async, [&] { return harness.jobs->Get(job).status(); });
  EXPECT_TRUE(store.AwaitAsked(1));
  EXPECT_TRUE(harness.jobs->Delete(job).ok());
  store.SetStuck(false);
  EXPECT_EQ(whole.get().message(), absl::StrCat("no job \"", job, "\""));
}

TEST(JobManagerReads, AJobThatIsDeletedWhileItIsCancelledIsCancelled) {
  StuckStore store;
  JobHarness harness(&store);
  const std::string job = harness.Submit(SmallSpec());
  store.SetStuck(true);
  auto cancelled = std::async(std::launch::async, [&] { return harness.jobs->Cancel(job); });
  EXPECT_TRUE(store.AwaitAsked(1));
  EXPECT_TRUE(harness.jobs->Delete(job).ok());
  store.SetStuck(false);
  const auto answer = cancelled.get();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->state(), v1::JOB_STATE_CANCELLED);
}

}  // namespace
}  // namespace stagewright
