// How an asynchronous job, whose pipeline is never empty by itself, stops to save its state: all
// workers agree to a step first.
#include "planner_service/lifecycle/changeover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/measured_job.h"

namespace stagewright {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using testing::JobHarness;
using testing::SmallSpec;

class AsynchronousChangeoverTest : public testing::MeasuredJobTest {
 protected:
  void Connect(const std::string& name, int64_t flush_after = 0) {
    if (flush_after > 0) {
      harness_->Connect(name, {{job_, 1}}, flush_after);
    } else {
      harness_->Connect(name);
    }
    harness_->Worker(name).silent_on = {Message::kStart};
    harness_->Worker(name).total_steps = 100'000;
  }
  // On a and b; c is free.
  void SetUp() override {
    for (const char* name : {"a", "b"}) Connect(name);
    v1::JobSpec spec = SmallSpec();
    spec.set_steps(100'000);
    spec.set_on_loss(v1::LOSS_POLICY_WAIT);
    spec.mutable_plan_options()->set_asynchronous(true);
    job_ = harness_->Submit(spec);
    ASSERT_EQ(harness_->Await(job_, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING)
        << Job().message();
    harness_->Pump();
    ASSERT_TRUE(Job().plan().program().asynchronous());
    Steps(1, 20, 1'000'000);
    Connect("c");
  }

  void Drain(const std::string& worker) {
    v1::SetWorkerAvailabilityRequest drain;
    drain.set_name(worker);
    drain.set_availability(v1::WORKER_AVAILABILITY_DRAINING);
    ASSERT_TRUE(harness_->jobs->SetAvailability(drain).ok());
  }
  v1::CheckpointAfter Asked(const std::string& worker) {
    return Newest(worker, Message::kCheckpointAfter)->checkpoint_after();
  }
  void Agree(const std::string& worker, int64_t step, bool late = false) {
    v1::ConnectRequest message;
    message.mutable_checkpoint_agreed()->set_job(job_);
    message.mutable_checkpoint_agreed()->set_generation(Job().generation());
    message.mutable_checkpoint_agreed()->set_step(step);
    message.mutable_checkpoint_agreed()->set_late(late);
    harness_->jobs->OnMessage(worker, message);
  }
};

TEST_F(AsynchronousChangeoverTest, LeavesAWorkerAfterAStepThatAllAgreedTo) {
  Drain("b");
  const int64_t step = Asked("a").step();
  EXPECT_TRUE(Asked("a").offer());
  EXPECT_GT(step, 23);
  Agree("a", step);
  EXPECT_TRUE(Asked("a").offer());
  Agree("b", step);
  for (const char* worker : {"a", "b"}) {
    EXPECT_EQ(Asked(worker).step(), step);
    EXPECT_FALSE(Asked(worker).offer());
    EXPECT_TRUE(Asked(worker).hold());
  }
  WriteShares(step);
  WriteManifest(step);
  const v1::Job left = harness_->Await(job_, v1::JOB_STATE_RUNNING);
  ASSERT_EQ(left.state(), v1::JOB_STATE_RUNNING) << left.message();
  EXPECT_THAT(left.devices(), ::testing::UnorderedElementsAre("a/cpu0", "c/cpu0"));
  EXPECT_EQ(left.restarts(), 0);
  EXPECT_EQ(left.generation(), 2);
}

TEST_F(AsynchronousChangeoverTest, AWorkerThatIsTooFarMakesAllAgreeToALaterStep) {
  Drain("b");
  const int64_t step = Asked("a").step();
  Agree("a", step);
  Agree("b", step, /*late=*/true);
  EXPECT_EQ(harness_->Heard("a", Message::kGoOn), 1);
  EXPECT_GT(Asked("a").step(), step);
  EXPECT_TRUE(Asked("a").offer());
  Agree("b", step);  // An answer to the offer before.
  Agree("a", Asked("a").step());
  EXPECT_TRUE(Asked("a").offer());
  Agree("b", Asked("b").step());
  EXPECT_FALSE(Asked("a").offer());
}

TEST_F(AsynchronousChangeoverTest, WhoDoesNotAnswerIsNotWaitedForLong) {
  Drain("b");
  Agree("a", Asked("a").step());
  const absl::Time later = absl::Now() + absl::Seconds(11);
  for (const char* worker : {"a", "b", "c"})
    harness_->registry.Heartbeat(worker, harness_->Worker(worker).session, later);
  harness_->jobs->Tick(later);
  EXPECT_EQ(harness_->Heard("b", Message::kGoOn), 1);
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_THAT(Job().warnings(), Contains(HasSubstr("it could not leave b: not all workers")));
}

TEST_F(AsynchronousChangeoverTest, AWorkerThatMissedWhatWasSettledHearsItAgain) {
  Drain("b");
  const int64_t step = Asked("a").step();
  for (const char* worker : {"a", "b"}) Agree(worker, step);
  harness_->Disconnect("b");
  harness_->Worker("b").heard.clear();
  harness_->Connect("b", {{job_, 1}});
  std::vector<v1::CheckpointAfter> told;
  for (const Message& message : harness_->Worker("b").heard) {
    if (message.has_checkpoint_after()) told.push_back(message.checkpoint_after());
  }
  // Before it is asked for another step, so that it empties its pipeline as the others do.
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].step(), step);
  EXPECT_FALSE(told[0].offer());
  EXPECT_NE(told[1].step(), step);
  EXPECT_TRUE(told[1].offer());
}

TEST_F(AsynchronousChangeoverTest, ALaterPlannerTellsAllWhatWasSettled) {
  Drain("b");
  const int64_t step = Asked("a").step();
  for (const char* worker : {"a", "b"}) Agree(worker, step);
  harness_->jobs->Suspend();
  harness_ = std::make_unique<JobHarness>(&store_);
  harness_->Connect("b", {{job_, 1}});
  EXPECT_EQ(harness_->Heard("b", Message::kGoOn), 0);
  Connect("a", /*flush_after=*/step);
  ASSERT_EQ(Job().state(), v1::JOB_STATE_RUNNING) << Job().message();
  for (const char* worker : {"a", "b"}) {
    EXPECT_EQ(Asked(worker).step(), step);
    EXPECT_FALSE(Asked(worker).offer());
    EXPECT_FALSE(Asked(worker).hold());
    EXPECT_EQ(harness_->Heard(worker, Message::kGoOn), 1);
  }
}

TEST_F(AsynchronousChangeoverTest, AStreamThatBreaksUnderALaterPlannerWithdrawsNoOffer) {
  harness_->jobs->Suspend();
  harness_ = std::make_unique<JobHarness>(&store_);
  for (const char* worker : {"a", "b"}) harness_->Connect(worker, {{job_, 1}});
  ASSERT_EQ(Job().state(), v1::JOB_STATE_RUNNING) << Job().message();
  Steps(21, 30, 1'000'000);
  Drain("b");
  ASSERT_TRUE(Asked("a").offer());
  harness_->Disconnect("b");
  harness_->Connect("b", {{job_, 1}});
  ASSERT_EQ(Job().state(), v1::JOB_STATE_RUNNING) << Job().message();
  for (const char* worker : {"a", "b"}) {
    Message last;
    for (const Message& message : harness_->Worker(worker).heard) {
      if (message.has_checkpoint_after() || message.has_go_on()) last = message;
    }
    EXPECT_TRUE(last.checkpoint_after().offer()) << worker << ": " << last.ShortDebugString();
  }
}

}  // namespace
}  // namespace stagewright
