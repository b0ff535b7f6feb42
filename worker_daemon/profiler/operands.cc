#include "worker_daemon/profiler/operands.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>

#include "common/cost/measured/operator_signature.h"
#include "worker_daemon/stage/parameter_store.h"
#include "worker_daemon/torch/operator_call.h"
#include "worker_daemon/torch/tensor_types.h"
#include "worker_daemon/torch/torch_guard.h"

namespace stagewright {
namespace {

class OperandMaker {
 public:
  OperandMaker(const Graph& graph, NodeId id, int64_t samples,
               const std::vector<IndexBounds>& bounds, at::Device device,
               const std::optional<GraphTypes>& types)
      : graph_(graph),
        types_(types),
        samples_(samples),
        device_(device),
        random_(at::detail::createCPUGenerator(/*seed=*/1)) {
    for (const IndexBounds& bound : bounds) {
      if (bound.node != id) continue;
      least_ = std::max(least_, bound.least);
      most_ = bounded_ ? std::min(most_, bound.most) : bound.most;
      bounded_ = true;
    }
    if (most_ < least_) most_ = least_;
  }

  absl::Status Make(const Node& node, int depth = 0) {
    absl::Status status;
    ForEachLeaf(node, [&](const Argument& leaf) {
      if (status.ok()) status = MakeOne(leaf, depth);
    });
    return status;
  }

  Operands Take() { return std::move(operands_); }

 private:
  absl::Status MakeOne(const Argument& argument, int depth) {
    const bool known = std::any_of(operands_.begin(), operands_.end(),
                                   [&](const auto& operand) { return operand.first == argument; });
    if (known) return absl::OkStatus();
    if (const NodeId view = ViewThatMade(graph_, argument, depth); view.valid())
      return MakeView(argument, view, depth);
    at::Tensor tensor;
    if (const auto* value = std::get_if<ValueRef>(&argument.value)) {
      tensor = Filled(TypeOf(graph_, types_, *value), ShapeAt(graph_.meta(*value), samples_));
    } else if (const auto* input = std::get_if<InputId>(&argument.value)) {
      tensor = Filled(graph_.input(*input).meta);
    } else if (const auto* total = std::get_if<TotalId>(&argument.value)) {
      tensor = Filled(graph_.meta(*total));
    } else if (const auto* parameter = std::get_if<ParameterId>(&argument.value)) {
      ASSIGN_OR_RETURN(tensor, MakeParameter(*parameter));
    } else {
      return absl::OkStatus();  // No tensor.
    }
    operands_.emplace_back(argument, std::move(tensor));
    return absl::OkStatus();
  }

  absl::Status MakeView(const Argument& argument, NodeId view, int depth) {
    const Node& node = graph_.node(view);
    RETURN_IF_ERROR(Make(node, depth + 1));
    const TensorSource source = [&](const Argument& operand) -> const at::Tensor& {
      return TensorOf(operands_, operand);
    };
    ASSIGN_OR_RETURN(const OperatorCall call,
                     OperatorCall::Bind(node, device_, /*training=*/true, source));
    std::vector<at::Tensor> outputs;
    RETURN_IF_ERROR(call.Run(samples_, source, outputs, types_.has_value()));
    const size_t output = static_cast<size_t>(std::get<ValueRef>(argument.value).output);
    operands_.emplace_back(argument, outputs[output].detach());
    return absl::OkStatus();
  }

  at::Tensor Filled(const TensorMeta& meta) { return Filled(meta.dtype, ShapeAt(meta, samples_)); }

  at::Tensor Filled(DType dtype, const std::vector<int64_t>& shape) {
    return OnHost(dtype, shape).to(device_);
  }

  at::Tensor OnHost(DType dtype, const std::vector<int64_t>& shape) {
    const at::ScalarType type = ToScalarType(dtype);
    if (IsFloating(dtype)) {
      return at::empty(shape, at::kFloat).uniform_(0.05, 0.95, random_).to(type);
    }
    if (dtype == DType::kBool) return at::ones(shape, type);
    if (!bounded_) return at::zeros(shape, type);
    return at::empty(shape, at::kLong).random_(least_, most_ + 1, random_).to(type);
  }

  absl::StatusOr<at::Tensor> MakeParameter(ParameterId id) {
    const Parameter stored = StoredTensor(graph_.parameter(id));
    const at::Tensor made = OnHost(stored.dtype, stored.shape);
    const TensorView view = {stored.name, stored.dtype, stored.shape,
                             std::as_bytes(std::span(static_cast<const char*>(made.data_ptr()),
                                                     static_cast<size_t>(made.nbytes()))),
                             nullptr};
    ASSIGN_OR_RETURN(const ParameterStore store,
                     ParameterStore::Load(
                         graph_, {id}, [&](const std::string&) { return &view; },
                         "made-up parameters", device_));
    return store[id];
  }

  const Graph& graph_;
  const std::optional<GraphTypes>& types_;
  const int64_t samples_;
  const at::Device device_;
  at::Generator random_;
  bool bounded_ = false;
  int64_t least_ = 0, most_ = 0;
  Operands operands_;
};

}  // namespace

const at::Tensor& TensorOf(const Operands& operands, const Argument& argument) {
  return std::find_if(operands.begin(), operands.end(),
                      [&](const auto& operand) { return operand.first == argument; })
      ->second;
}

absl::StatusOr<Operands> MakeOperands(const Graph& graph, NodeId node, int64_t samples,
                                      const std::vector<IndexBounds>& bounds, at::Device device,
                                      const std::optional<GraphTypes>& types) {
  OperandMaker maker(graph, node, samples, bounds, device, types);
  const at::NoGradGuard no_grad;
  absl::Status status;
  RETURN_IF_ERROR(Guarded([&] { status = maker.Make(graph.node(node)); }));
  RETURN_IF_ERROR(status);
  return maker.Take();
}

}  // namespace stagewright
