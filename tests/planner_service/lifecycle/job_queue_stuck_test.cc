// Runs that never end, and what waits for their devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "planner_service/lifecycle/job_queue.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/job_harness.h"

namespace stagewright {
namespace {

using testing::JobHarness;
using testing::RecordingStore;
using testing::SmallSpec;
using Message = v1::ConnectResponse;

class JobQueueStuckTest : public ::testing::Test {
 protected:
  // Workers whose jobs run on until they are told otherwise; those that hang do not end them.
  void Connect(const std::vector<std::string>& names, bool hang = false) {
    for (const std::string& name : names) {
      harness_.Connect(name);
      harness_.Worker(name).silent_on = {Message::kStart};
      if (hang) harness_.Worker(name).silent_on.insert(Message::kAbort);
      harness_.Worker(name).total_steps = 100'000;
    }
  }
  std::string Submit(int32_t priority, int32_t devices, bool preemptible = false) {
    v1::JobSpec spec = SmallSpec();
    spec.set_num_devices(devices);
    spec.mutable_plan_options()->set_num_stages(devices);
    spec.set_priority(priority);
    spec.set_preemptible(preemptible);
    return harness_.Submit(spec);
  }
  std::string Running(int32_t devices, bool preemptible = false) {
    std::string job = Submit(0, devices, preemptible);
    const v1::Job running = harness_.Await(job, v1::JOB_STATE_RUNNING);
    EXPECT_EQ(running.state(), v1::JOB_STATE_RUNNING) << running.message();
    harness_.Pump();
    return job;
  }
  void Step(const std::string& name, int64_t step) {
    const v1::Job job = harness_.Get(name);
    for (const v1::DeviceProgram& device : job.plan().program().devices()) {
      const std::string& qualified = job.devices(device.device());
      v1::ConnectRequest message;
      v1::Progress* progress = message.mutable_progress();
      progress->set_job(name);
      progress->set_generation(job.generation());
      progress->set_step(step);
      progress->add_devices()->set_device(device.device());
      progress->mutable_devices(0)->set_step_ns(500'000'000);
      harness_.jobs->OnMessage(qualified.substr(0, qualified.find('/')), message);
    }
  }
  v1::Job Get(const std::string& job) const { return harness_.Get(job); }
  // A job has ended, but not on its two workers, which hang.
  void HangUp() {
    Connect({"x", "y"}, /*hang=*/true);
    const std::string over = Running(2);
    ASSERT_TRUE(harness_.jobs->Cancel(over).ok());
    harness_.Pump();
  }
  // So much later, when those that are connected have sent heartbeats.
  void Pass(absl::Duration time) { harness_.PassUntil(absl::Now() + time); }

  RecordingStore store_;
  JobHarness harness_{&store_};
};

TEST_F(JobQueueStuckTest, ARunThatDoesNotEndKeepsNothingButItsDevices) {
  HangUp();
  Connect({"a", "b"});
  const std::string high = Submit(5, 4), low = Submit(0, 2);
  Pass(absl::ZeroDuration());
  EXPECT_EQ(Get(high).message(), "waits for 4 free devices: 2 are free, 2 are being left");
  EXPECT_EQ(Get(low).state(), v1::JOB_STATE_PENDING);
  Pass(kRunsEndWithin + absl::Seconds(1));
  EXPECT_EQ(Get(high).message(),
            "waits for 4 devices: 2 are connected and open to jobs, 2 are not left yet by the run "
            "before");
  EXPECT_EQ(Get(low).state(), v1::JOB_STATE_PLANNING);
}

TEST_F(JobQueueStuckTest, ARunThatDoesNotEndKeepsNobodyFromMakingRoom) {
  HangUp();
  Connect({"a", "b"});
  const std::string low = Running(2, /*preemptible=*/true);
  for (int64_t step = 1; step <= 4; ++step) Step(low, step);
  const std::string high = Submit(5, 2);
  Pass(absl::ZeroDuration());
  EXPECT_EQ(Get(high).message(), "waits for 2 free devices: 0 are free, 2 are being left");
  Pass(kRunsEndWithin + absl::Seconds(1));
  EXPECT_EQ(Get(high).message(),
            absl::StrCat("waits for ", low, " to save its state and make room"));
}

}  // namespace
}  // namespace stagewright
