// How often the store hears of jobs that only wait, and is asked for them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner_service/lifecycle/job_queue.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/job_harness.h"

namespace stagewright {
namespace {

using testing::JobHarness;
using testing::RecordingStore;
using testing::SmallSpec;

TEST(JobQueueWritesTest, AReasonToWaitThatChangesIsNotWritten) {
  RecordingStore store;
  JobHarness harness(&store);
  for (const char* worker : {"a", "b", "c"}) {
    harness.Connect(worker);
    harness.Worker(worker).silent_on = {v1::ConnectResponse::kStart};
  }
  v1::JobSpec spec = SmallSpec();
  spec.set_num_devices(1);
  spec.mutable_plan_options()->set_num_stages(1);
  const std::string running = harness.Submit(spec);
  ASSERT_EQ(harness.Await(running, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
  spec.set_num_devices(3);
  const std::string job = harness.Submit(spec);
  int writes = 0;
  store.FailWhen([&writes](const v1::Job&) {
    ++writes;
    return false;
  });
  std::string reason;
  int reasons = 0;
  for (int i = 0; i < 5; ++i) {
    for (const auto said : {v1::WORKER_AVAILABILITY_CORDONED, v1::WORKER_AVAILABILITY_OPEN}) {
      v1::SetWorkerAvailabilityRequest request;
      request.set_name("b");
      request.set_availability(said);
      ASSERT_TRUE(harness.jobs->SetAvailability(request).ok());
      const std::string message = harness.Get(job).message();
      reasons += message == reason ? 0 : 1;
      reason = message;
    }
  }
  EXPECT_EQ(reasons, 10);
  EXPECT_EQ(writes, 0);
}

// Thousands may wait, and each write takes a disk's time.
TEST(JobQueueWritesTest, JobsThatWaitAreNotWrittenWhenThePlannerIsRestarted) {
  RecordingStore store;
  std::string job;
  {
    JobHarness harness(&store);
    v1::JobSpec spec = SmallSpec();
    spec.set_num_devices(3);
    job = harness.Submit(spec);
    ASSERT_EQ(harness.Get(job).state(), v1::JOB_STATE_PENDING);
  }
  int writes = 0;
  store.FailWhen([&writes](const v1::Job&) {
    ++writes;
    return false;
  });
  JobHarness harness(&store);
  EXPECT_EQ(harness.Get(job).state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(writes, 0);
}

// Each read takes its way to an etcd and back, while nobody leads.
TEST(JobQueueWritesTest, JobsThatWaitAreReadTogetherWhenThePlannerIsRestarted) {
  constexpr int kJobs = 40;
  RecordingStore store;
  {
    JobHarness harness(&store);
    v1::JobSpec spec = SmallSpec();
    spec.set_num_devices(3);
    for (int i = 0; i < kJobs; ++i) harness.Submit(spec);
  }
  const int before = store.reads();
  JobHarness harness(&store);
  EXPECT_LE(store.reads() - before, 10);
  EXPECT_EQ(harness.List().size(), static_cast<size_t>(kJobs));
  for (const char* worker : {"a", "b", "c"}) harness.Connect(worker);
  EXPECT_EQ(harness.Await("jobs/1", v1::JOB_STATE_SUCCEEDED).message(), "");
}

// What a job waits for is told and not written: a planner that comes next does not know how often.
TEST(JobQueueWritesTest, NoVersionOfAJobIsToldTwiceHoweverOftenThePlannerIsRestarted) {
  RecordingStore store;
  std::string job;
  int64_t last = 0;
  for (int life = 0; life < 4; ++life) {
    JobHarness harness(&store);
    v1::JobSpec spec = SmallSpec();
    spec.set_num_devices(3);
    if (job.empty()) job = harness.Submit(spec);
    EXPECT_GT(harness.Get(job).version(), last) << life;
    harness.Connect(absl::StrCat("worker", life));
    last = harness.Get(job).version();
  }
}

// A disk that is full when the planner starts may have room later.
class FullStore : public RecordingStore {
 public:
  absl::Status WriteIf(const std::vector<Condition>& conditions,
                       const std::vector<Mutation>& batch) override {
    if (full) return absl::ResourceExhaustedError("the disk is full");
    return RecordingStore::WriteIf(conditions, batch);
  }

  bool full = false;
};

TEST(JobQueueWritesTest, APlannerStartsWithoutRoomForItsLife) {
  FullStore store;
  std::string job;
  {
    JobHarness harness(&store);
    job = harness.Submit(SmallSpec());
  }
  store.full = true;
  JobHarness harness(&store);
  EXPECT_EQ(harness.Get(job).state(), v1::JOB_STATE_PENDING);
}

}  // namespace
}  // namespace stagewright
