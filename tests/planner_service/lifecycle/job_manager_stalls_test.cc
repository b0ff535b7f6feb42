// The planner itself stands still for a while: stopped by a signal, on a machine that sleeps, or
// waiting for its store.
#include <gtest/gtest.h>

#include <string>

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

}  // namespace
}  // namespace stagewright
