// Workers that reach the planner and not each other: a job goes on with those that do reach each
// other, waits or fails, by its policy, and does not start again and again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "planner_service/lifecycle/job_losses.h"
#include "planner_service/registry/quarantine.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/job_harness.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT
using ::testing::HasSubstr;
using ::testing::Not;
using Message = v1::ConnectResponse;

constexpr int kUnavailable = static_cast<int>(absl::StatusCode::kUnavailable);

// Workers a, b, c, ... of a device each, of which the last one and the others do not reach each
// other.
class JobLossesPeersTest : public ::testing::Test {
 protected:
  JobLossesPeersTest() {
    spec_.set_max_restarts(5);
    spec_.mutable_checkpoints()->set_every_steps(10);
    spec_.mutable_plan_options()->clear_num_stages();
    spec_.set_steps(1000);
    spec_.set_planner("graphpipe");
  }

  void Start(int workers) {
    workers_ = workers;
    spec_.set_num_devices(workers);
    for (int i = 0; i < workers; ++i) Connect(i);
    job_ = harness_.Submit(spec_);
  }
  void Connect(int i) {
    harness_.Connect(NameOf(i));
    harness_.Worker(NameOf(i)).silent_on = {Message::kConnectPeers};
  }
  void Reach() {
    for (int i = 0; i < workers_; ++i) {
      harness_.Worker(NameOf(i)).silent_on = {Message::kStart};
      harness_.Worker(NameOf(i)).total_steps = 1000;
    }
  }
  void AwaitPeers(int run) {
    ASSERT_EQ(harness_.Await(job_, v1::JOB_STATE_STARTING).state(), v1::JOB_STATE_STARTING)
        << Job().message();
    ASSERT_EQ(Job().generation(), run);
    harness_.Pump();
  }
  // They begin with another one in each run.
  void AllGiveUp(int run) {
    for (int turn = 0; turn < workers_; ++turn) GiveUp((run + turn) % workers_, run);
    Pass(kLossIsKnownWithin + absl::Seconds(0.5));
    harness_.Pump();
  }
  void GiveUp(int i, int run) {
    v1::ConnectRequest message;
    v1::Failed* failed = message.mutable_failed();
    failed->set_job(job_);
    failed->set_generation(run);
    failed->set_code(kUnavailable);
    const int last = workers_ - 1;
    for (int other = 0; other < workers_; ++other)
      if (i == last ? other != last : other == last) failed->add_unreached_devices(other);
    failed->set_message(
        absl::StrCat("device ", failed->unreached_devices(0), " cannot be reached"));
    harness_.jobs->OnMessage(NameOf(i), message);
  }
  void Pass(absl::Duration time) {
    later_ += time;
    harness_.PassUntil(absl::Now() + later_);
  }
  // Each run without a step is followed by a longer wait.
  void PassTheWait() { Pass(absl::Seconds(4)); }
  static std::string NameOf(int i) { return {static_cast<char>('a' + i)}; }
  v1::Job Job() const { return harness_.Get(job_); }
  v1::WorkerDevice DeviceOf(int i) const { return harness_.registry.Get(NameOf(i))->devices(0); }

  RecordingStore store_;
  JobHarness harness_{&store_};
  v1::JobSpec spec_ = SmallSpec();
  int workers_ = 0;
  std::string job_;
  absl::Duration later_;
};

class JobLossesPeersSizeTest : public JobLossesPeersTest,
                               public ::testing::WithParamInterface<int> {};

TEST_P(JobLossesPeersSizeTest, TheJobGoesOnWithThoseThatReachEachOther) {
  Start(GetParam());
  for (int run = 1; run <= kGapsToQuarantine; ++run) {
    AwaitPeers(run);
    AllGiveUp(run);
    if (run == kGapsToQuarantine) Reach();
    PassTheWait();
  }
  const v1::Job job = harness_.Await(job_, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING) << job.message();
  EXPECT_EQ(job.restarts(), kGapsToQuarantine);
  const int last = GetParam() - 1;
  ASSERT_EQ(job.devices_size(), last);
  for (int i = 0; i < last; ++i) EXPECT_EQ(job.devices(i), NameOf(i) + "/cpu0");
  EXPECT_TRUE(DeviceOf(last).has_quarantined_until());
  EXPECT_THAT(DeviceOf(last).quarantine_reason(),
              HasSubstr("no path between peers and worker " + NameOf(last)));
}

INSTANTIATE_TEST_SUITE_P(Workers, JobLossesPeersSizeTest, ::testing::Values(2, 3));

TEST_F(JobLossesPeersTest, WaitIsForAnotherOrForTheEndOfTheQuarantine) {
  spec_.set_on_loss(v1::LOSS_POLICY_WAIT);
  Start(2);
  for (int run = 1; run <= kGapsToQuarantine; ++run) {
    AwaitPeers(run);
    AllGiveUp(run);
    PassTheWait();
  }
  EXPECT_EQ(Job().state(), v1::JOB_STATE_PENDING);
  EXPECT_THAT(Job().message(), HasSubstr("no path between peers and worker b"));
  EXPECT_THAT(Job().message(), HasSubstr("waits for 2 devices: 1 is connected and open to jobs, "
                                         "1 is in quarantine"));
}

TEST_F(JobLossesPeersTest, FailSaysBetweenWhomThereIsNoPath) {
  spec_.set_on_loss(v1::LOSS_POLICY_FAIL);
  Start(2);
  AwaitPeers(1);
  AllGiveUp(1);
  EXPECT_EQ(Job().state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Job().failure_code(), kUnavailable);
  EXPECT_THAT(Job().message(), HasSubstr("worker b: device 0 cannot be reached"));
  EXPECT_THAT(Job().message(), HasSubstr("no path between peers and worker b"));
}

TEST_F(JobLossesPeersTest, AWorkerThatDiedIsNotToBlameForIt) {
  Start(2);
  for (int run = 1; run <= kGapsToQuarantine; ++run) {
    AwaitPeers(run);
    GiveUp(1, run);
    harness_.Disconnect("a");
    EXPECT_THAT(Job().message(), HasSubstr("worker a was lost"));
    EXPECT_THAT(Job().message(), Not(HasSubstr("no path")));
    Connect(0);
    harness_.Pump();
    PassTheWait();
  }
  for (int i = 0; i < workers_; ++i) EXPECT_FALSE(DeviceOf(i).has_quarantined_until()) << i;
}

}  // namespace
}  // namespace stagewright
