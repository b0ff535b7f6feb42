#include "planner_service/runs/run.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "stagewright/v1/planner_service.pb.h"

namespace stagewright {
namespace {

// More steps that some device has not reported yet are thinned.
constexpr size_t kOpenSteps = 8192;

std::vector<int32_t> WorkingDevices(const Job& job) {
  std::vector<int32_t> devices;
  if (job.plan == nullptr) {
    for (size_t i = 0; i < job.devices.size(); ++i) devices.push_back(static_cast<int32_t>(i));
    return devices;
  }
  for (const v1::DeviceProgram& device : job.plan->program().devices())
    devices.push_back(device.device());
  std::sort(devices.begin(), devices.end());
  return devices;
}

CheckpointProgress ProgressOf(const Job& job, size_t devices, absl::Time now) {
  const std::optional<CheckpointPolicy>& policy = job.request->training.checkpoints;
  return {devices, absl::Nanoseconds(policy.has_value() ? policy->every.count() : 0), now};
}

}  // namespace

Run::Run(const Job& job, absl::Time now) : Run(job, WorkingDevices(job), now) {}

Run::Run(const Job& job, const std::vector<int32_t>& devices, absl::Time now)
    : begun_(now),
      steps_(devices.size(), kOpenSteps),
      traces_(devices.size()),
      checkpoints_(ProgressOf(job, devices.size(), now)) {
  for (const int32_t index : devices) {
    const std::string& device = job.devices[static_cast<size_t>(index)];
    devices_.push_back(device);
    workers_[device.substr(0, device.find('/'))].push_back(index);
  }
}

absl::Status Run::Prepare(const std::string& worker, const Preparation& preparation) {
  if (!prepared_.empty() && preparation.total_steps != total_steps_) {
    return absl::FailedPreconditionError(absl::StrCat("workers disagree on the data: worker ",
                                                      worker, " counts ", preparation.total_steps,
                                                      " steps, others ", total_steps_));
  }
  if (!prepared_.empty() && preparation.first_step != first_step_) {
    return absl::UnavailableError(absl::StrCat("workers disagree on where to resume: worker ",
                                               worker, " after step ", preparation.first_step, " (",
                                               preparation.resumed_from, "), worker ",
                                               *prepared_.begin(), " after step ", first_step_));
  }
  first_step_ = newest_ = preparation.first_step;
  total_steps_ = preparation.total_steps;
  prepared_.insert(worker);
  for (const auto& [device, address] : preparation.addresses) addresses_[device] = address;
  return absl::OkStatus();
}

bool Run::NoteFetched(const std::string& worker, const Fetched& fetched) {
  Fetched& known = fetched_[worker];
  if (fetched.done <= known.done) return false;
  known = fetched;
  return true;
}

Fetched Run::fetched() const {
  Fetched all;
  for (const auto& [worker, fetched] : fetched_) {
    all.done += fetched.done;
    all.total += fetched.total;
  }
  return all;
}

bool Run::Connect(const std::string& worker, absl::Time now) {
  connected_.insert(worker);
  if (connected_.size() < workers_.size()) return false;
  checkpoints_.Begin(now);
  return true;
}

std::vector<std::string> Run::Unanswered() const {
  const std::set<std::string>& answered = connected_.empty() ? prepared_ : connected_;
  std::vector<std::string> waiting;
  for (const auto& [worker, devices] : workers_) {
    if (!answered.contains(worker)) waiting.push_back(worker);
  }
  return waiting;
}

std::set<std::string> Run::lost() const {
  std::set<std::string> names;
  for (const auto& [worker, until] : lost_) names.insert(worker);
  return names;
}

absl::Time Run::due() const {
  absl::Time due = deadline;
  for (const auto& [worker, until] : lost_) {
    if (!gone_.contains(worker)) due = std::min(due, until);
  }
  return due;
}

bool Run::IsNews(const StepFigures& step) {
  if (step.step <= newest_) return false;
  newest_ = step.step;
  step_times_.Add(step.time.count());
  recent_.Add(step.time);
  return true;
}

bool Run::Complete(const std::string& worker, const Completion& completion) {
  if (!completed_.insert(worker).second) return false;
  std::vector<std::string>& shards = completion_.shards;
  shards.insert(shards.end(), completion.shards.begin(), completion.shards.end());
  if (completion.stopped_after > 0) completion_.stopped_after = completion.stopped_after;
  completion_.evaluated += completion.evaluated;
  completion_.evaluation.loss += completion.evaluation.loss;
  completion_.evaluation.predicted += completion.evaluation.predicted;
  completion_.evaluation.correct += completion.evaluation.correct;
  if (!IsComplete()) return false;
  std::sort(shards.begin(), shards.end());
  return true;
}

}  // namespace stagewright
