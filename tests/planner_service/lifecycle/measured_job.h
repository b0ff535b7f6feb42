// A test of a running job whose devices tell of their steps, with what each action took, and save
// their state when they are asked to.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tests/planner_service/lifecycle/job_harness.h"

namespace stagewright::testing {

class MeasuredJobTest : public ::testing::Test {
 protected:
  using Message = v1::ConnectResponse;

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
      if (operators_) {
        v1::OperatorTime* time = own->add_operators();
        time->set_device(device.device());
        time->set_samples(4);
        time->set_forward_ns(1'000);
        time->set_backward_ns(2'000);
      }
      for (const v1::ProgramAction& item : device.body()) {
        if (!trace) break;
        v1::TraceEvent* event = progress->add_trace();
        event->set_device(device.device());
        *event->mutable_action() = item.action();
        event->set_step(static_cast<int32_t>(step - 1));
        const auto slower = times_.find(device.device());
        const double times = slower == times_.end() ? 1 : slower->second;
        event->set_end_ns(IsTransfer(item.action())
                              ? transfer_ns_
                              : static_cast<int64_t>(static_cast<double>(pass_ns_) * times));
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
    const std::string first = WorkerOf(Job(), 0);
    v1::ConnectRequest message;
    message.mutable_checkpoint_written()->set_job(job_);
    message.mutable_checkpoint_written()->set_generation(Job().generation());
    message.mutable_checkpoint_written()->set_step(step);
    message.mutable_checkpoint_written()->set_path(absl::StrCat("out/checkpoints/step-", step));
    harness_->jobs->OnMessage(first, message);
  }

  static bool IsTransfer(const v1::Action& action) {
    return action.kind() >= v1::ACTION_KIND_SEND_ACTIVATION &&
           action.kind() <= v1::ACTION_KIND_RECEIVE_GRADIENT;
  }

  // What actions of a step take.
  int64_t pass_ns_ = 1'000'000;
  int64_t transfer_ns_ = 20'000'000;
  bool operators_ = false;           // Whether devices tell what one takes.
  std::map<int32_t, double> times_;  // How many times as long those of a device take.
  RecordingStore store_;
  std::unique_ptr<JobHarness> harness_ = std::make_unique<JobHarness>(&store_);
  std::string job_;
};

}  // namespace stagewright::testing
