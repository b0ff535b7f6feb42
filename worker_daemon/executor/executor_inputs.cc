// What the compute actions take: inputs, totals of the batch, values and gradients of other stages.
#include <ATen/ATen.h>

#include <algorithm>

#include "worker_daemon/executor/executor.h"
#include "worker_daemon/torch/tensor_types.h"

namespace stagewright {

size_t Executor::IndexOf(const std::vector<ValueRef>& sorted, ValueRef value) {
  const auto found = std::lower_bound(sorted.begin(), sorted.end(), value);
  TORCH_INTERNAL_ASSERT(found != sorted.end() && *found == value);
  return static_cast<size_t>(found - sorted.begin());
}

absl::StatusOr<at::Tensor> Executor::LoadInput(InputId input, SampleRange range) {
  const SampleRange in_step = InStep(range);
  return LoadSamples(input, BatchOf(range).samples.subspan(static_cast<size_t>(in_step.begin),
                                                           static_cast<size_t>(in_step.size())));
}

absl::StatusOr<at::Tensor> Executor::LoadSamples(InputId input, std::span<const int64_t> samples) {
  const TensorMeta& meta = graph_.input(input).meta;
  const auto count = static_cast<int64_t>(samples.size());
  const std::vector<int64_t> shape = ShapeAt(meta, count);
  DeviceStreams* const streams = options_.streams;
  at::Tensor tensor = streams == nullptr ? at::empty(shape, ToScalarType(meta.dtype))
                                         : buffers_->Take(meta.SizeBytes(count));
  RETURN_IF_ERROR(data_.Gather(input, samples, static_cast<std::byte*>(tensor.data_ptr())));
  if (streams == nullptr) return tensor.to(options_.device);
  DeviceStreams::Arrived arrived = streams->CopyIn(std::move(tensor));
  streams->Await(arrived.ready);
  return arrived.tensors[0].view(ToScalarType(meta.dtype)).view(shape);
}

absl::StatusOr<std::vector<at::Tensor>> Executor::TotalsOf(std::span<const int64_t> samples) {
  if (!totals_.has_value()) return std::vector<at::Tensor>();
  std::vector<at::Tensor> inputs;
  for (InputId input : plan_.totals.inputs) {
    ASSIGN_OR_RETURN(at::Tensor tensor, LoadSamples(input, samples));
    inputs.push_back(std::move(tensor));
  }
  return totals_->Run(static_cast<int64_t>(samples.size()), inputs);
}

// The micro-batch of the stage that a replica's share of it lies in.
SampleRange Executor::MicroBatchOf(StageId stage, SampleRange range) const {
  const int64_t size = program_.stages[stage.index()].micro_batch;
  const int64_t begin = range.begin - InStep(range).begin % size;
  return {begin, begin + size};
}

absl::StatusOr<std::vector<at::Tensor>> Executor::CollectTotals(StageId stage, SampleRange range) {
  const std::vector<TotalId>& wanted = ModuleOf(stage).totals();
  if (wanted.empty()) return std::vector<at::Tensor>();
  Batch& batch = BatchOf(range);
  std::vector<at::Tensor> all;
  if (batch.totals.has_value()) {
    all = *batch.totals;
  } else if (program_.asynchronous) {
    const SampleRange own = InStep(MicroBatchOf(stage, range));
    ASSIGN_OR_RETURN(all, TotalsOf(batch.samples.subspan(static_cast<size_t>(own.begin),
                                                         static_cast<size_t>(own.size()))));
  } else {
    ASSIGN_OR_RETURN(all, TotalsOf(batch.samples.first(static_cast<size_t>(batch.valid))));
    batch.totals = all;
  }
  std::vector<at::Tensor> totals;
  for (TotalId id : wanted) {
    const auto& values = plan_.totals.values;
    totals.push_back(all[std::lower_bound(values.begin(), values.end(), id) - values.begin()]);
  }
  return totals;
}

std::vector<TensorPiece> Executor::Take(int32_t channel, Direction direction, SampleRange range) {
  std::vector<TensorPiece> pieces = mailbox_.Take(channel, direction, range);
  for (const TensorPiece& piece : pieces) {
    if (piece.ready != nullptr) options_.streams->Await(piece.ready);
  }
  return pieces;
}

absl::StatusOr<StageModule::Tensors> Executor::Collect(StageId stage, SampleRange range) {
  const StageModule& module = ModuleOf(stage);
  std::vector<std::vector<Part>> parts(module.received().size());
  for (int32_t c : plan_.OfStage(stage).into) {
    for (TensorPiece& piece : Take(c, Direction::kActivation, range)) {
      const std::vector<ValueRef>& values = program_.channels[c].values;
      for (size_t i = 0; i < piece.tensors.size(); ++i) {
        parts[IndexOf(module.received(), values[i])].push_back(
            {piece.samples, std::move(piece.tensors[i])});
      }
    }
  }
  StageModule::Tensors tensors;
  for (size_t i = 0; i < parts.size(); ++i) {
    const ValueRef value = module.received()[i];
    auto joined = Join(std::move(parts[i]), graph_.meta(value), range);
    if (!joined.ok()) return Annotate(joined.status(), NameOf(graph_.node(value.node)));
    tensors.received.push_back(*std::move(joined));
  }
  for (InputId input : module.inputs()) {
    ASSIGN_OR_RETURN(at::Tensor tensor, LoadInput(input, range));
    tensors.inputs.push_back(std::move(tensor));
  }
  ASSIGN_OR_RETURN(tensors.totals, CollectTotals(stage, range));
  return tensors;
}

absl::StatusOr<std::vector<at::Tensor>> Executor::CollectGradients(StageId stage,
                                                                   SampleRange range) {
  const std::vector<ValueRef>& outputs = ModuleOf(stage).outputs();
  std::vector<std::vector<Part>> parts(outputs.size());
  for (int32_t c : plan_.OfStage(stage).out) {
    const std::vector<ValueRef>& values = program_.channels[c].gradient_values;
    for (TensorPiece& piece : Take(c, Direction::kGradient, range)) {
      for (size_t i = 0; i < piece.tensors.size(); ++i) {
        if (!piece.tensors[i].defined()) continue;
        parts[IndexOf(outputs, values[i])].push_back({piece.samples, std::move(piece.tensors[i])});
      }
    }
  }
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < outputs.size(); ++i) {
    auto sum = Sum(parts[i], graph_.meta(outputs[i]), range);
    if (!sum.ok()) return Annotate(sum.status(), NameOf(graph_.node(outputs[i].node)));
    gradients.push_back(*std::move(sum));
  }
  return gradients;
}

}  // namespace stagewright
