// A job whose steps are not as predicted: what is said of it, and how it changes its plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/job_harness.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using testing::JobHarness;
using testing::RecordingStore;
using testing::SmallSpec;
using Message = v1::ConnectResponse;

constexpr int64_t kPass = 1'000'000;
constexpr int64_t kTransfer = 20'000'000;

bool IsTransferOf(const v1::Action& action) {
  return action.kind() >= v1::ACTION_KIND_SEND_ACTIVATION &&
         action.kind() <= v1::ACTION_KIND_RECEIVE_GRADIENT;
}

class JobReplanTest : public ::testing::Test {
 protected:
  // A running job of two stages with one sample at a time, where the planner may choose anything.
  void Run() {
    for (const char* name : {"a", "b"}) {
      harness_->Connect(name);
      harness_->Worker(name).silent_on = {Message::kStart};
      harness_->Worker(name).total_steps = 100'000;
    }
    v1::JobSpec spec = SmallSpec();
    spec.set_steps(100'000);
    spec.mutable_plan_options()->set_micro_batch(1);
    const std::string first = harness_->Submit(spec);
    ASSERT_EQ(harness_->Await(first, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
    *spec.mutable_strategy() = harness_->Get(first).plan().strategy();
    ASSERT_TRUE(harness_->jobs->Cancel(first).ok());
    spec.clear_plan_options();
    job_ = harness_->Submit(spec);
    ASSERT_EQ(harness_->Await(job_, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
    harness_->Pump();
    ASSERT_EQ(Job().plan().program().devices_size(), 2);
  }

  v1::Job Job() const { return harness_->Get(job_); }
  static std::string WorkerOf(const v1::Job& job, int32_t device) {
    return job.devices(device).substr(0, job.devices(device).find('/'));
  }

  // Both devices tell of a step, with all their actions.
  void Step(int64_t step, int64_t step_ns, bool trace = true) {
    const v1::Job job = Job();
    for (const v1::DeviceProgram& device : job.plan().program().devices()) {
      v1::ConnectRequest message;
      v1::Progress* progress = message.mutable_progress();
      progress->set_job(job_);
      progress->set_generation(job.generation());
      progress->set_step(step);
      v1::DeviceProgress* own = progress->add_devices();
      own->set_device(device.device());
      own->set_step_ns(step_ns);
      for (const v1::ProgramAction& item : device.body()) {
        if (!trace) break;
        v1::TraceEvent* event = progress->add_trace();
        event->set_device(device.device());
        *event->mutable_action() = item.action();
        event->set_step(static_cast<int32_t>(step - 1));
        event->set_end_ns(IsTransferOf(item.action()) ? kTransfer : kPass);
      }
      harness_->jobs->OnMessage(WorkerOf(job, device.device()), message);
    }
  }
  void Steps(int64_t first, int64_t last, int64_t step_ns) {
    for (int64_t step = first; step <= last; ++step) Step(step, step_ns);
  }

  absl::StatusOr<v1::ReplanJobResponse> Replan(bool apply, const std::string& name = "") {
    v1::ReplanJobRequest request;
    request.set_name(name.empty() ? job_ : name);
    request.set_apply(apply);
    absl::Notification ended;
    absl::StatusOr<v1::ReplanJobResponse> answer = absl::UnknownError("none");
    harness_->jobs->Replan(request, [&](absl::StatusOr<v1::ReplanJobResponse> response) {
      answer = std::move(response);
      ended.Notify();
    });
    ended.WaitForNotification();
    return answer;
  }

  // The newest message of a kind that `worker` heard.
  std::optional<Message> Newest(const std::string& worker, Message::MessageCase kind) {
    std::optional<Message> newest;
    for (const Message& message : harness_->Worker(worker).heard) {
      if (message.message_case() == kind) newest = message;
    }
    return newest;
  }

  void WriteShares(int64_t step, const std::string& error = "", bool skipped = false) {
    const v1::Job job = Job();
    for (const v1::DeviceProgram& device : job.plan().program().devices()) {
      v1::ConnectRequest message;
      v1::ShardWritten* written = message.mutable_shard_written();
      written->set_job(job_);
      written->set_generation(job.generation());
      written->set_step(step);
      written->set_device(device.device());
      if (device.device() == 0) written->set_error(error);
      if (device.device() == 0) written->set_skipped(skipped);
      harness_->jobs->OnMessage(WorkerOf(job, device.device()), message);
    }
  }
  void WriteManifest(int64_t step) {
    v1::ConnectRequest message;
    message.mutable_checkpoint_written()->set_job(job_);
    message.mutable_checkpoint_written()->set_generation(Job().generation());
    message.mutable_checkpoint_written()->set_step(step);
    message.mutable_checkpoint_written()->set_path(absl::StrCat("out/checkpoints/step-", step));
    harness_->jobs->OnMessage("a", message);
  }

  RecordingStore store_;
  std::unique_ptr<JobHarness> harness_ = std::make_unique<JobHarness>(&store_);
  std::string job_;
};

TEST_F(JobReplanTest, ComparesActionsWithThePlans) {
  Run();
  Steps(1, 9, 50 * kPass);
  EXPECT_FALSE(Job().has_measurement());
  Step(10, 50 * kPass);
  const v1::StepMeasurement measured = Job().measurement();
  EXPECT_EQ(measured.step(), 10);
  EXPECT_EQ(measured.steps(), 5);
  int64_t forwards = 0;
  for (const v1::ActionTime& action : measured.actions()) {
    EXPECT_EQ(action.measured_ns(), action.size_bytes() > 0 ? kTransfer : kPass);
    if (action.kind() == v1::ACTION_KIND_FORWARD) forwards += action.count();
  }
  EXPECT_EQ(forwards, 16);  // Eight samples, one at a time, in two stages.
  EXPECT_TRUE(harness_->List()[0].measurement().actions().empty());
}

TEST_F(JobReplanTest, OneSlowStepIsNoDrift) {
  Run();
  const int64_t predicted = Job().metrics().predicted_step_ns();
  ASSERT_GT(predicted, 0);
  Steps(1, 20, predicted);
  Step(21, 100 * predicted);
  Steps(22, 40, predicted);
  EXPECT_FALSE(Job().has_drift());
  EXPECT_EQ(Job().metrics().recent_step_ns(), predicted);
}

TEST_F(JobReplanTest, ALastingDriftIsNamedAndEnds) {
  Run();
  const int64_t predicted = Job().metrics().predicted_step_ns();
  Steps(1, 16, 3 * predicted);
  EXPECT_FALSE(Job().has_drift());  // Fifteen steps but the first.
  Step(17, 3 * predicted);
  ASSERT_TRUE(Job().has_drift());
  EXPECT_NEAR(Job().drift().ratio(), 2, 1e-9);
  EXPECT_EQ(Job().drift().since_step(), 17);
  // Workers were asked to tell some steps to come.
  const auto asked = Newest("b", Message::kTraceSteps);
  ASSERT_TRUE(asked.has_value());
  EXPECT_TRUE(asked->trace_steps().operators());
  const int64_t first = asked->trace_steps().first_step();
  EXPECT_GT(first, 17);
  Steps(18, first + asked->trace_steps().steps(), 3 * predicted);
  EXPECT_EQ(Job().measurement().step(), first + asked->trace_steps().steps());
  ASSERT_FALSE(Job().drift().causes().empty());
  EXPECT_THAT(Job().drift().causes(0), HasSubstr("link "));
  const int64_t now = first + asked->trace_steps().steps();
  Steps(now + 1, now + 64, predicted);
  EXPECT_FALSE(Job().has_drift());
}

TEST_F(JobReplanTest, RefusesWhatCannotBePlannedAnew) {
  EXPECT_EQ(Replan(false, "jobs/9").status().code(), absl::StatusCode::kNotFound);
  Run();
  const auto early = Replan(true);
  EXPECT_EQ(early.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(early.status().message(), HasSubstr("no measured steps yet"));
  Steps(1, 10, kPass);
  ASSERT_TRUE(harness_->jobs->Cancel(job_).ok());
  const auto ended = Replan(true);
  EXPECT_EQ(ended.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(ended.status().message(), HasSubstr("is not running"));
}

TEST_F(JobReplanTest, OnlyLookingChangesNothing) {
  Run();
  Steps(1, 10, 200 * kPass);
  const auto looked = Replan(false);
  ASSERT_TRUE(looked.ok()) << looked.status();
  ASSERT_TRUE(looked->has_better()) << looked->message();
  EXPECT_FALSE(looked->applied());
  EXPECT_LT(looked->better().evaluation().iteration_ns(),
            looked->present().evaluation().iteration_ns());
  // The messages of eight micro-batches follow each other.
  EXPECT_GE(looked->present().evaluation().iteration_ns(), 8 * kTransfer * 9 / 10);
  EXPECT_EQ(harness_->Heard("a", Message::kCheckpointAfter), 0);
}

TEST_F(JobReplanTest, ChangesOverAtACheckpointThatAllStopAfter) {
  Run();
  Steps(1, 10, 200 * kPass);
  const auto changed = Replan(true);
  ASSERT_TRUE(changed.ok()) << changed.status();
  ASSERT_TRUE(changed->applied()) << changed->message();
  for (const char* worker : {"a", "b"}) {
    const auto asked = Newest(worker, Message::kCheckpointAfter);
    ASSERT_TRUE(asked.has_value());
    EXPECT_TRUE(asked->checkpoint_after().hold());
    EXPECT_EQ(asked->checkpoint_after().step(), changed->after_step());
  }
  EXPECT_EQ(Replan(false).status().code(), absl::StatusCode::kFailedPrecondition);
  const int64_t step = changed->after_step();
  Steps(11, step, 200 * kPass);
  const int64_t generation = Job().generation();
  WriteShares(step);
  EXPECT_EQ(Job().generation(), generation);
  WriteManifest(step);
  const v1::Job again = harness_->Await(job_, v1::JOB_STATE_RUNNING);
  ASSERT_EQ(again.state(), v1::JOB_STATE_RUNNING) << again.message();
  EXPECT_EQ(again.generation(), generation + 1);
  EXPECT_EQ(again.replans(), 1);
  EXPECT_EQ(again.restarts(), 0);
  EXPECT_EQ(again.plan().fingerprint(), changed->better().fingerprint());
  EXPECT_FALSE(again.has_drift());
  EXPECT_FALSE(again.has_measurement());
  const auto prepared = Newest("a", Message::kPrepare);
  EXPECT_EQ(prepared->prepare().spec().resume_path(), absl::StrCat("out/checkpoints/step-", step));
  EXPECT_FALSE(prepared->prepare().restart());
}

TEST_F(JobReplanTest, ADeviceThatHeardTooLateMakesAllGoOnAndTryAgain) {
  Run();
  Steps(1, 10, 200 * kPass);
  const auto changed = Replan(true);
  ASSERT_TRUE(changed.ok() && changed->applied());
  WriteShares(changed->after_step(), "it was announced too late", /*skipped=*/true);
  EXPECT_EQ(harness_->Heard("a", Message::kGoOn), 1);
  EXPECT_EQ(harness_->Heard("b", Message::kGoOn), 1);
  const auto again = Newest("a", Message::kCheckpointAfter);
  EXPECT_GT(again->checkpoint_after().step(), changed->after_step());
  EXPECT_TRUE(again->checkpoint_after().hold());
  EXPECT_EQ(Job().generation(), 1);
  WriteShares(again->checkpoint_after().step());
  WriteManifest(again->checkpoint_after().step());
  EXPECT_EQ(harness_->Await(job_, v1::JOB_STATE_RUNNING).generation(), 2);
}

TEST_F(JobReplanTest, ACheckpointThatCannotBeWrittenKeepsThePlan) {
  Run();
  Steps(1, 10, 200 * kPass);
  const auto changed = Replan(true);
  ASSERT_TRUE(changed.ok() && changed->applied());
  WriteShares(changed->after_step(), "no space left");
  EXPECT_EQ(harness_->Heard("b", Message::kGoOn), 1);
  EXPECT_EQ(harness_->Heard("b", Message::kCheckpointAfter), 1);
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Job().replans(), 0);
  EXPECT_THAT(Job().warnings(), ::testing::Contains(HasSubstr("it keeps its plan: ")));
}

TEST_F(JobReplanTest, AWorkerThatWasNotHeardOfMakesAllGoOnAndTryAgain) {
  Run();
  Steps(1, 10, 200 * kPass);
  const auto changed = Replan(true);
  ASSERT_TRUE(changed.ok() && changed->applied());
  harness_->Disconnect("b");
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RECOVERING);
  harness_->Connect("b", {{job_, 1}});
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(harness_->Heard("a", Message::kGoOn), 1);
  EXPECT_EQ(harness_->Heard("a", Message::kCheckpointAfter), 2);
  EXPECT_EQ(harness_->Heard("b", Message::kCheckpointAfter), 2);
  const int64_t step = Newest("b", Message::kCheckpointAfter)->checkpoint_after().step();
  WriteShares(step);
  WriteManifest(step);
  EXPECT_EQ(harness_->Await(job_, v1::JOB_STATE_RUNNING).generation(), 2);
}

TEST_F(JobReplanTest, WorkersThatWaitForAPlannerThatIsGoneGoOn) {
  Run();
  Steps(1, 10, 200 * kPass);
  ASSERT_TRUE(Replan(true)->applied());
  const int64_t generation = Job().generation();
  harness_->jobs->Suspend();
  harness_ = std::make_unique<JobHarness>(&store_);
  for (const char* worker : {"a", "b"}) harness_->Connect(worker, {{job_, generation}});
  EXPECT_EQ(Job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(harness_->Heard("a", Message::kGoOn), 1);
  EXPECT_EQ(harness_->Heard("b", Message::kGoOn), 1);
}

}  // namespace
}  // namespace stagewright
