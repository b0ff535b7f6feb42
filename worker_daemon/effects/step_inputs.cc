#include "worker_daemon/effects/step_inputs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker_daemon/torch/tensor_types.h"
#include "worker_daemon/torch/torch_guard.h"

namespace stagewright {

absl::StatusOr<std::unique_ptr<StepInputs>> StepInputs::Create(
    const Graph& graph, const Program& program, const DevicePlan& plan, const Dataset& data,
    const ParameterStore& parameters, BufferPool& buffers, at::Device device,
    DeviceStreams* streams) {
  std::unique_ptr<StepInputs> inputs(
      new StepInputs(graph, program, plan, data, buffers, device, streams));
  if (streams != nullptr && !plan.inputs.empty()) {
    inputs->prefetch_ = std::make_unique<InputPrefetch>(
        [&own = *inputs](InputId input, std::span<const int64_t> samples) {
          return own.GatherOnThread(input, samples);
        });
  }
  if (plan.totals.values.empty()) return inputs;
  auto totals = TotalsModule::Create(graph, plan.totals, parameters, device);
  if (!totals.ok()) {
    return Annotate(totals.status(), absl::StrCat("device ", plan.program->device.value()));
  }
  inputs->totals_.emplace(*std::move(totals));
  return inputs;
}

absl::Status StepInputs::Check(const StepInput& input) const {
  const auto bad = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("step ", input.step, ": ", what...));
  };
  const auto size = static_cast<int64_t>(input.samples.size());
  if (size != program_.mini_batch || input.valid < 1 || input.valid > program_.mini_batch ||
      (program_.training && input.valid != program_.mini_batch)) {
    return bad(size, " samples, ", input.valid, " of them valid, for a mini-batch of ",
               program_.mini_batch);
  }
  const bool next_needed = plan_.has_sections && input.steps_left > 0;
  if (input.steps_left < 0 || (input.next_samples.empty() && next_needed))
    return bad("the samples of the step after it are missing");
  if (!input.next_samples.empty() && input.next_samples.size() != input.samples.size())
    return bad(input.next_samples.size(), " samples of the step after it, not ", size);
  return absl::OkStatus();
}

void StepInputs::Begin(const StepInput& input) {
  step_ = input.step;
  batches_[0] = {input.samples, input.valid, std::nullopt};
  if (input.totals != nullptr) batches_[0].totals = *input.totals;
  batches_[1] = {input.next_samples, input.valid, std::nullopt};
  if (prefetch_ != nullptr) prefetch_->Expect(loads_.From(input, /*begins_run=*/!in_run_));
  in_run_ = plan_.has_sections && input.steps_left > 0;
}

void StepInputs::GatherAhead(std::span<const int64_t> samples) {
  if (prefetch_ != nullptr) prefetch_->Expect(loads_.OfRun(samples));
}

absl::StatusOr<at::Tensor> StepInputs::Load(InputId input, const StepSamples& samples) const {
  const std::span<const int64_t> indices = BatchOf(samples.step).In(samples.range);
  at::Tensor gathered;
  if (prefetch_ != nullptr) gathered = prefetch_->Take(input, indices);
  if (!gathered.defined()) {
    ASSIGN_OR_RETURN(gathered, Gather(input, indices));
  }
  return OnDevice(input, samples.range.size(), std::move(gathered));
}

absl::StatusOr<std::vector<at::Tensor>> StepInputs::Load(const std::vector<InputId>& inputs,
                                                         const StepSamples& samples) const {
  std::vector<at::Tensor> tensors;
  for (InputId input : inputs) {
    ASSIGN_OR_RETURN(at::Tensor tensor, Load(input, samples));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

absl::StatusOr<at::Tensor> StepInputs::Gather(InputId input,
                                              std::span<const int64_t> samples) const {
  const TensorMeta& meta = graph_.input(input).meta;
  const auto count = static_cast<int64_t>(samples.size());
  at::Tensor tensor = streams_ == nullptr
                          ? at::empty(ShapeAt(meta, count), ToScalarType(meta.dtype))
                          : buffers_.Take(meta.SizeBytes(count));
  RETURN_IF_ERROR(data_.Gather(input, samples, static_cast<std::byte*>(tensor.data_ptr())));
  return tensor;
}

absl::StatusOr<at::Tensor> StepInputs::GatherOnThread(InputId input,
                                                      std::span<const int64_t> samples) const {
  absl::StatusOr<at::Tensor> gathered = at::Tensor();
  RETURN_IF_ERROR(Guarded([&] {
    const DeviceStreams::Scope on_compute(streams_);  // Memory is pinned for the current device.
    gathered = Gather(input, samples);
  }));
  return gathered;
}

at::Tensor StepInputs::OnDevice(InputId input, int64_t count, at::Tensor gathered) const {
  if (streams_ == nullptr) return gathered.to(device_);
  const TensorMeta& meta = graph_.input(input).meta;
  DeviceStreams::Arrived arrived = streams_->CopyIn(std::move(gathered));
  streams_->Await(arrived.ready);
  return arrived.tensors[0].view(ToScalarType(meta.dtype)).view(ShapeAt(meta, count));
}

absl::StatusOr<std::vector<at::Tensor>> StepInputs::TotalsOver(
    std::span<const int64_t> samples) const {
  if (!totals_.has_value()) return std::vector<at::Tensor>();
  std::vector<at::Tensor> inputs;
  for (InputId input : plan_.totals.inputs) {
    ASSIGN_OR_RETURN(at::Tensor gathered, Gather(input, samples));
    inputs.push_back(OnDevice(input, static_cast<int64_t>(samples.size()), std::move(gathered)));
  }
  return totals_->Run(static_cast<int64_t>(samples.size()), inputs);
}

absl::StatusOr<std::vector<at::Tensor>> StepInputs::AllTotals(StageId stage,
                                                              const StepSamples& samples) {
  Batch& batch = BatchOf(samples.step);
  if (batch.totals.has_value()) return *batch.totals;
  if (program_.asynchronous) {
    // The micro-batch that a replica's share of it lies in.
    const int64_t size = program_.stages[stage.index()].micro_batch;
    const int64_t begin = samples.range.begin - samples.range.begin % size;
    return TotalsOver(batch.In({begin, begin + size}));
  }
  ASSIGN_OR_RETURN(batch.totals, TotalsOver(batch.samples.first(static_cast<size_t>(batch.valid))));
  return *batch.totals;
}

absl::StatusOr<std::vector<at::Tensor>> StepInputs::TotalsFor(const std::vector<TotalId>& wanted,
                                                              StageId stage,
                                                              const StepSamples& samples) {
  if (wanted.empty()) return std::vector<at::Tensor>();
  ASSIGN_OR_RETURN(const std::vector<at::Tensor> all, AllTotals(stage, samples));
  const std::vector<TotalId>& values = plan_.totals.values;
  std::vector<at::Tensor> totals;
  for (TotalId id : wanted)
    totals.push_back(all[std::lower_bound(values.begin(), values.end(), id) - values.begin()]);
  return totals;
}

StepSamples StepInputs::ValidOf(const StepSamples& samples) const {
  return {samples.step, Intersect(samples.range, {0, ValidIn(samples.step)})};
}

std::string StepInputs::InData(const StepAction& action) const {
  constexpr size_t kShown = 8;
  if (plan_.inputs.empty() || !IsCompute(action.action().kind)) return "";
  const auto& [step, range] = action.samples;
  const int64_t batch = step - step_;
  if (range.empty() || batch < 0 || batch >= static_cast<int64_t>(batches_.size())) return "";
  if (range.end > static_cast<int64_t>(batches_[batch].samples.size())) return "";
  const std::span<const int64_t> samples = batches_[batch].In(range);
  return absl::StrCat(" (", absl::StrJoin(samples.first(std::min(kShown, samples.size())), ", "),
                      samples.size() > kShown ? ", ... of the data)" : " of the data)");
}

}  // namespace stagewright
