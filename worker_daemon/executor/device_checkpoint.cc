#include "worker_daemon/executor/device_checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"
#include "common/clock/steady_wait.h"
#include "common/data/sliced_tensors.h"
#include "worker_daemon/checkpoint/ownership.h"
#include "worker_daemon/checkpoint/state_shares.h"
#include "worker_daemon/executor/piecewise_copy.h"
#include "worker_daemon/torch/operator_call.h"
#include "worker_daemon/torch/tensor_types.h"
#include "worker_daemon/torch/torch_guard.h"

namespace stagewright {
namespace {

// The parameter's part of a state of the optimizer, where that has an entry for each of the stored
// tensor; else all of it.
absl::StatusOr<at::Tensor> StateTensor(const TensorView& view, const Parameter& parameter) {
  const bool sliced = parameter.slice.has_value() && view.shape == parameter.slice->shape;
  at::Tensor tensor = at::empty(sliced ? parameter.shape : view.shape, ToScalarType(view.dtype));
  const std::span out(static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes());
  RETURN_IF_ERROR(sliced ? ReadParameter(view, parameter, out) : ReadTensor(view, out));
  return tensor;
}

// By ParameterId: what forward passes change. All others change in optimizer steps, or never.
std::vector<bool> ChangedByPasses(const Graph& graph) {
  std::vector<bool> changed(graph.parameters().size());
  for (const StateUpdate& update : graph.state_updates()) changed[update.parameter.index()] = true;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    if (!ChangesBuffers(graph.nodes()[i])) continue;
    for (ParameterId id : graph.Parameters(NodeId(i))) changed[id.index()] = true;
  }
  return changed;
}

// The scale of the loss, and how many good steps it has seen: float64[2]. The same on all devices,
// so one saves it.
constexpr char kLossScaleName[] = "loss_scale";

}  // namespace

int64_t FirstStep(const DeviceJob& spec) {
  return spec.resume == nullptr ? 0 : spec.resume->manifest().step;
}

EvaluationHistory HistoryOf(const DeviceJob& spec) {
  return spec.resume == nullptr ? EvaluationHistory() : spec.resume->manifest().evaluations;
}

absl::Status CheckResume(const DeviceJob& spec) {
  if (spec.resume == nullptr) return absl::OkStatus();
  const Manifest& manifest = spec.resume->manifest();
  const auto wrong = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(spec.resume->directory(), ": ", what...));
  };
  if (manifest.seed != spec.seed)
    return wrong("it was taken with seed ", manifest.seed, ", the job has seed ", spec.seed);
  if (manifest.shuffled != (spec.order == SampleOrder::kShuffled)) {
    return wrong("it was taken ", manifest.shuffled ? "with" : "without",
                 " shuffling, the job trains ", manifest.shuffled ? "without" : "with");
  }
  if (manifest.step >= spec.steps) {
    return wrong("it was taken after step ", manifest.step, ", and the job has only ", spec.steps,
                 " steps: nothing is left to do");
  }
  if (manifest.samples != manifest.step * spec.program->mini_batch) {
    return wrong("its ", manifest.step, " steps consumed ", manifest.samples,
                 " samples, which is no mini-batch of ", spec.program->mini_batch, " each");
  }
  if (manifest.optimizer != StateName(spec.training.optimizer.kind)) {
    return wrong("it is of optimizer ", manifest.optimizer, ", the job has ",
                 StateName(spec.training.optimizer.kind));
  }
  return absl::OkStatus();
}

absl::StatusOr<ParameterStore> LoadParameters(const DeviceJob& spec,
                                              const std::vector<ParameterId>& ids,
                                              at::Device device) {
  if (spec.resume == nullptr)
    return ParameterStore::Load(*spec.graph, ids, spec.weights_path, device);
  return ParameterStore::Load(
      *spec.graph, ids, [&](const std::string& name) { return spec.resume->Weight(name); },
      spec.resume->directory(), device);
}

absl::Status RestoreOptimizer(const DeviceJob& spec, const std::vector<ParameterId>& ids,
                              ParameterOptimizer& optimizer) {
  if (spec.resume == nullptr) return absl::OkStatus();
  for (ParameterId id : ids) {
    const Parameter& parameter = spec.graph->parameter(id);
    if (!parameter.trainable) continue;
    std::map<std::string, TensorView> views;
    for (const std::string& name : NamesOf(StoredTensor(parameter))) {
      if (views.empty()) views = spec.resume->OptimizerState(name);
    }
    std::map<std::string, at::Tensor> state;
    for (const auto& [name, view] : views) {
      ASSIGN_OR_RETURN(state[name], StateTensor(view, parameter));
    }
    RETURN_IF_ERROR(Annotate(
        optimizer.Restore(id, state),
        absl::StrCat(spec.resume->directory(), ": parameter \"", parameter.stored_name(), "\"")));
  }
  return absl::OkStatus();
}

absl::StatusOr<LossScale> RestoreLossScale(const DeviceJob& spec) {
  const TensorView* view =
      spec.resume == nullptr ? nullptr : spec.resume->SharedState(kLossScaleName);
  if (view == nullptr) return LossScale(spec.training.loss_scale);
  double state[2];
  const bool fits = view->dtype == DType::kFloat64 && view->data.size() == sizeof(state);
  if (fits) RETURN_IF_ERROR(ReadTensor(*view, std::as_writable_bytes(std::span(state))));
  if (!fits || !(state[0] > 0) || !std::isfinite(state[0]) || !(state[1] >= 0)) {
    return absl::DataLossError(absl::StrCat(spec.resume->directory(), ": tensor \"", kLossScaleName,
                                            "\" is not a scale of the loss"));
  }
  return LossScale(spec.training.loss_scale, state[0], static_cast<int64_t>(state[1]));
}

DeviceCheckpoint::~DeviceCheckpoint() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void DeviceCheckpoint::Loop() {
  at::init_num_threads();  // Without this call copies take all cores, whatever the device may use.
  while (true) {
    Order order;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(
          +[](DeviceCheckpoint* self) ABSL_NO_THREAD_SAFETY_ANALYSIS {
            return self->closing_ || self->order_.has_value();
          },
          this));
      if (!order_.has_value()) return;
      order = *order_;
      order_.reset();
    }
    Write(order);
    absl::MutexLock lock(&mutex_);
    writing_ = hangs_ = false;
  }
}

void DeviceCheckpoint::Collect() {
  model_.clear();
  state_.clear();
  if (loss_scale_ != nullptr && spec_->device == spec_->program->devices.front().device) {
    state_.push_back(
        {kLossScaleName, DType::kFloat64,
         at::tensor({loss_scale_->value(), static_cast<double>(loss_scale_->good_steps())},
                    at::kDouble),
         true});
  }
  const std::vector<bool> changed = ChangedByPasses(*spec_->graph);
  for (ParameterId id : ParametersToWrite(*spec_->graph, *spec_->program, spec_->device)) {
    const Parameter& parameter = spec_->graph->parameter(id);
    const at::Tensor tensor = (*parameters_)[id].detach();
    if (parameter.trainable || !changed[id.index()]) {
      model_.push_back({parameter.name, parameter.dtype, tensor, false});
    } else {
      const bool here = tensor.is_cpu();
      model_.push_back({parameter.name, parameter.dtype,
                        here ? PiecewiseCopy().ToHost(tensor) : tensor.clone(), here});
    }
    if (!optimizer_->shares().contains(id)) CollectState(id);
  }
  for (const auto& [id, share] : optimizer_->shares()) CollectState(id);
  if (streams_ == nullptr || !streams_->compute().has_value()) return;
  if (copies_ == nullptr) copies_ = MakeDeviceStreams(streams_->compute()->device());
  ready_ = streams_->Record();
}

// What is shared out is written by everybody who has a share.
void DeviceCheckpoint::CollectState(ParameterId id) {
  const Parameter& parameter = spec_->graph->parameter(id);
  const auto share = optimizer_->shares().find(id);
  for (const auto& [name, state] : optimizer_->StateOf(id)) {
    const bool step = state.dim() == 0 && name == "step";  // A float32 of its own.
    std::string full = absl::StrCat(parameter.name, ".", name);
    if (share != optimizer_->shares().end() && !step)
      full = ShareName({std::move(full), share->second.begin, share->second.end});
    state_.push_back({std::move(full), step ? DType::kFloat32 : parameter.dtype, state, step});
  }
}

bool DeviceCheckpoint::AwaitLast() {
  absl::MutexLock lock(&mutex_);
  const absl::Duration patience = hangs_ ? absl::ZeroDuration() : spec_->step_timeout / 2;
  hangs_ = !AwaitFor(mutex_,
                     absl::Condition(
                         +[](bool* writing) { return !*writing; }, &writing_),
                     patience);
  return !hangs_;
}

void DeviceCheckpoint::Begin(int64_t steps, const EvaluationHistory& evaluations) {
  const absl::Time begin = SteadyNow();
  CheckpointReport report;
  report.step = steps;
  if (!AwaitLast()) {
    report.skipped = true;
    report.stall = SteadyNow() - begin;
    report.status = absl::UnavailableError("the one before is still being written");
    return spec_->on_checkpoint(std::move(report));
  }
  {
    absl::MutexLock lock(&mutex_);
    writing_ = copying_ = true;
  }
  report.status = Guarded([this] { Collect(); });
  if (!report.status.ok()) {
    report.stall = SteadyNow() - begin;
    model_.clear();
    state_.clear();
    {
      absl::MutexLock lock(&mutex_);
      writing_ = copying_ = false;
    }
    return spec_->on_checkpoint(std::move(report));
  }
  {
    absl::MutexLock lock(&mutex_);
    stall_ = SteadyNow() - begin;
    order_ = {steps, evaluations};
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
  if (spec_->await_checkpoints) AwaitLast();
}

void DeviceCheckpoint::Write(const Order& order) {
  CheckpointReport report;
  report.step = order.steps;
  report.status = Guarded([&] {
    const DeviceStreams::Scope on_own(copies_.get());
    if (copies_ != nullptr) copies_->Await(ready_);
    PiecewiseCopy copy;
    for (std::vector<Item>* items : {&model_, &state_}) {
      for (Item& item : *items) {
        if (!item.copied) item.tensor = copy.ToHost(item.tensor);
      }
    }
  });
  {
    absl::MutexLock lock(&mutex_);
    copying_ = false;
  }
  if (report.status.ok() && spec_->may_write) report.status = spec_->may_write();
  if (report.status.ok()) {
    std::vector<TensorView> views[2];
    for (size_t i = 0; i < 2; ++i) {
      for (const Item& item : i == 0 ? model_ : state_) {
        const at::Tensor& tensor = item.tensor;
        views[i].push_back({item.name,
                            item.dtype,
                            tensor.sizes().vec(),
                            {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
      }
    }
    if (unread_ != nullptr)
      views[0].insert(views[0].end(), unread_->tensors().begin(), unread_->tensors().end());
    auto files =
        WriteDeviceFiles(CheckpointDirectory(spec_->checkpoint_root, order.steps), spec_->device,
                         views[0], views[1], order.evaluations, spec_->writer);
    report.status = files.status();
    if (files.ok()) report.files = *std::move(files);
  }
  model_.clear();
  state_.clear();
  {
    absl::MutexLock lock(&mutex_);
    report.stall = stall_;
  }
  spec_->on_checkpoint(std::move(report));
}

void DeviceCheckpoint::AwaitCopied() {
  absl::MutexLock lock(&mutex_);
  if (!copying_) return;
  const absl::Time begin = SteadyNow();
  mutex_.Await(absl::Condition(
      +[](bool* copying) { return !*copying; }, &copying_));
  stall_ += SteadyNow() - begin;
}

void DeviceCheckpoint::AwaitWritten() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](bool* writing) { return !*writing; }, &writing_));
}

}  // namespace stagewright
