#include "worker_daemon/torch/operand_checks.h"

#include <ATen/core/Tensor.h>

#include <map>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

absl::Status Refusal(const std::string& name, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("argument \"", name, "\" ", why));
}

// The arguments of a call, by name.
class Operands {
 public:
  Operands(const c10::FunctionSchema& schema, const torch::jit::Stack& stack)
      : schema_(schema), stack_(stack) {}

  // None where the operator has no such argument.
  c10::IValue Get(const std::string& name) const {
    const std::optional<int> index = schema_.argumentIndexWithName(name);
    return index.has_value() ? stack_[static_cast<size_t>(*index)] : c10::IValue();
  }
  bool Has(const std::string& name) const {
    return schema_.argumentIndexWithName(name).has_value();
  }
  // Undefined if it is none.
  at::Tensor Tensor(const std::string& name) const {
    const c10::IValue value = Get(name);
    return value.isTensor() ? value.toTensor() : at::Tensor();
  }
  bool Bool(const std::string& name) const { return Get(name).isBool() && Get(name).toBool(); }

 private:
  const c10::FunctionSchema& schema_;
  const torch::jit::Stack& stack_;
};

// One tensor at least, all of one shape.
absl::Status CheckStack(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  const std::vector<at::Tensor> tensors = Operands(schema, stack).Get("tensors").toTensorVector();
  if (tensors.empty()) return Refusal("tensors", "is empty");
  for (const at::Tensor& tensor : tensors) {
    if (tensor.sizes() != tensors[0].sizes()) return Refusal("tensors", "has different shapes");
  }
  return absl::OkStatus();
}

// Channels in dimension 1, a number for each of them in the others; statistics that are not those
// of the batch are given.
absl::Status CheckBatchNorm(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  const Operands operands(schema, stack);
  const at::Tensor input = operands.Tensor("input");
  if (!input.defined() || !input.is_floating_point() || input.dim() < 2 || input.numel() == 0)
    return Refusal("input", "is no batch of numbers with channels");
  const bool trains = operands.Bool(operands.Has("training") ? "training" : "train") ||
                      !(operands.Has("training") || operands.Has("train"));
  for (const char* name : {"weight", "bias", "running_mean", "running_var"}) {
    const at::Tensor tensor = operands.Tensor(name);
    const bool statistics = absl::string_view(name).substr(0, 7) == "running";
    if (!tensor.defined() && statistics && !trains)
      return Refusal(name, "is missing where training is off");
    if (!tensor.defined()) continue;
    if (!tensor.is_floating_point() || tensor.dim() != 1 || tensor.size(0) != input.size(1))
      return Refusal(name, "has not a number for each channel");
  }
  return absl::OkStatus();
}

// A number for each slice of `v` along its first or last dimension, for which there is a kernel;
// along others it is computed from operators that check for themselves.
absl::Status CheckWeightNorm(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  const Operands operands(schema, stack);
  const at::Tensor v = operands.Tensor("v"), g = operands.Tensor("g");
  if (!v.defined() || !v.is_floating_point() || v.numel() == 0 || v.dim() == 0)
    return Refusal("v", "holds no numbers");
  const int64_t dim = operands.Get("dim").toInt();
  const bool fused = dim == 0 || dim == v.dim() - 1;
  if (!fused && schema.name() == "aten::_weight_norm") return absl::OkStatus();
  if (!fused) return Refusal("dim", "is neither the first nor the last");
  if (!g.defined() || g.scalar_type() != v.scalar_type() || g.numel() != v.size(dim))
    return Refusal("g", "has not a number of the same type for each slice of \"v\"");
  return absl::OkStatus();
}

// Weights for each layer and direction: two matrices, biases for both, and a projection for LSTMs
// that have one.
absl::Status CheckRecurrent(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  constexpr int64_t kMostLayers = 1 << 16;
  const Operands operands(schema, stack);
  const int64_t layers = operands.Get("num_layers").toInt();
  if (layers < 1 || layers > kMostLayers) return Refusal("num_layers", "is no number of layers");
  const auto given = static_cast<int64_t>(operands.Get("params").toTensorVector().size());
  const int64_t cells = layers * (operands.Bool("bidirectional") ? 2 : 1);
  const int64_t each = operands.Bool("has_biases") ? 4 : 2;
  const bool projects = schema.name() == "aten::lstm" && given == cells * (each + 1);
  if (given != cells * each && !projects) {
    return Refusal(
        "params", absl::StrCat("has ", given, " tensors, ", layers, " layers take ", cells * each));
  }
  return absl::OkStatus();
}

}  // namespace

OperandCheck OperandCheckOf(const std::string& name) {
  static const auto& checks = *new std::map<std::string, OperandCheck>{
      {"aten::_batch_norm_with_update", CheckBatchNorm},
      {"aten::_native_batch_norm_legit", CheckBatchNorm},
      {"aten::_native_batch_norm_legit_functional", CheckBatchNorm},
      {"aten::_stack", CheckStack},
      {"aten::_weight_norm", CheckWeightNorm},
      {"aten::_weight_norm_interface", CheckWeightNorm},
      {"aten::gru", CheckRecurrent},
      {"aten::lstm", CheckRecurrent},
      {"aten::native_batch_norm", CheckBatchNorm},
      {"aten::rnn_relu", CheckRecurrent},
      {"aten::rnn_tanh", CheckRecurrent},
  };
  const auto found = checks.find(name);
  return found == checks.end() ? nullptr : found->second;
}

}  // namespace stagewright
