#include "worker_daemon/torch/operator_call.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/data/safetensors.h"
#include "common/graph/aten.h"
#include "common/graph/operators/allowed_operators.h"
#include "common/graph/operators/check_operators.h"
#include "worker_daemon/torch/gradient_layout.h"
#include "worker_daemon/torch/tensor_types.h"

namespace stagewright {
namespace {

// "aten.linear.default" -> ("aten::linear", ""), "aten.add.Tensor" -> ("aten::add", "Tensor").
// A view of a value that came from another stage may need a copy: messages are contiguous, whatever
// the strides were where it was captured. Reshapes are views where they can be.
std::optional<c10::OperatorName> ParseTarget(const std::string& target) {
  if (target == "aten.view.default") return c10::OperatorName("aten::reshape", "");
  const size_t dot = target.find('.');
  const size_t last = target.rfind('.');
  if (dot == std::string::npos || last == dot) return std::nullopt;
  std::string overload = target.substr(last + 1);
  if (overload == "default") overload.clear();
  return c10::OperatorName(
      absl::StrCat(target.substr(0, dot), "::", target.substr(dot + 1, last - dot - 1)), overload);
}

absl::Status FromTorch(const Node& node, const char* message) {
  absl::string_view text(message);
  while (absl::ConsumeSuffix(&text, "\n")) {
  }
  return absl::InternalError(absl::StrCat(NameOf(node), ": ", text));
}

}  // namespace

std::string NameOf(const Node& node) {
  const std::string text = absl::StrCat("node \"", node.name, "\" (", node.target, ")");
  return node.module.empty() ? text : absl::StrCat(text, " of module \"", node.module, "\"");
}

absl::StatusOr<OperatorCall> OperatorCall::Bind(const Node& node, at::Device device, bool training,
                                                const TensorSource& parameters) {
  const std::optional<c10::OperatorName> name = ParseTarget(node.target);
  const auto handle = name.has_value() ? c10::Dispatcher::singleton().findSchema(*name)
                                       : std::optional<c10::OperatorHandle>();
  if (!handle.has_value()) {
    return absl::NotFoundError(absl::StrCat(NameOf(node), ": no such operator in LibTorch"));
  }
  if (handle->schema().is_mutable() && !IsAllowedOperator(node.target)) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(node), ": operators that change their arguments cannot be run"));
  }
  RETURN_IF_ERROR(CheckOperator(node));
  OperatorCall call(node, *handle);
  RETURN_IF_ERROR(Annotate(call.BindArguments(device, parameters), NameOf(node)));
  if (!training) call.SwitchOffTraining();
  RETURN_IF_ERROR(Annotate(call.CheckRandomness(), NameOf(node)));
  return call;
}

absl::Status OperatorCall::BindArguments(at::Device device, const TensorSource& parameters) {
  const std::vector<c10::Argument>& schema = handle_.schema().arguments();
  if (node_->args.size() > schema.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("args: ", node_->args.size(), " given, ", schema.size(), " taken"));
  }
  for (const NamedArgument& given : node_->kwargs) {
    if (!SlotOf(given.name.c_str()).has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("kwargs: there is no argument \"", given.name, "\""));
    }
  }
  for (size_t i = 0; i < schema.size(); ++i) {
    Slot slot;
    if (i < node_->args.size()) {
      slot.argument = &node_->args[i];
    } else {
      const auto named =
          std::find_if(node_->kwargs.begin(), node_->kwargs.end(),
                       [&](const NamedArgument& a) { return a.name == schema[i].name(); });
      if (named != node_->kwargs.end()) slot.argument = &named->value;
    }
    if (schema[i].name() == "device") {
      slot = {c10::IValue(device), nullptr};
    } else if (slot.argument == nullptr) {
      if (!schema[i].default_value().has_value()) {
        return absl::InvalidArgumentError(
            absl::StrCat("argument \"", schema[i].name(), "\" is missing"));
      }
      slot.constant = *schema[i].default_value();
    } else if (IsKnown(*slot.argument)) {
      ASSIGN_OR_RETURN(c10::IValue value, ToIValue(*slot.argument, schema[i], 1, parameters));
      if (IsConstant(*slot.argument)) slot = {std::move(value), nullptr};
    }
    slots_.push_back(std::move(slot));
  }
  return absl::OkStatus();
}

std::optional<size_t> OperatorCall::SlotOf(const char* name) const {
  const std::vector<c10::Argument>& schema = handle_.schema().arguments();
  for (size_t i = 0; i < schema.size(); ++i) {
    if (schema[i].name() == name) return i;
  }
  return std::nullopt;
}

void OperatorCall::SwitchOffTraining() {
  // Without running statistics a normalisation takes those of the batch in evaluation, too.
  const auto statistics = SlotOf("running_mean");
  const bool keeps_none = handle_.schema().overload_name() == "no_stats" ||
                          (statistics.has_value() && slots_[*statistics].argument == nullptr &&
                           slots_[*statistics].constant.isNone());
  for (const char* name : {"train", "training"}) {
    const auto slot = SlotOf(name);
    if (!slot.has_value() || keeps_none) continue;
    slots_[*slot] = {c10::IValue(false), nullptr};
    evaluates_otherwise_ = true;
  }
  if (const auto slot = SlotOf("dropout_p")) slots_[*slot] = {c10::IValue(0.0), nullptr};
}

bool ChangesBuffers(const Node& node) {
  return absl::StrContains(node.target, "batch_norm") ||
         absl::StrContains(node.target, "instance_norm");
}

absl::Status OperatorCall::CheckRandomness() const {
  if (!handle_.hasTag(at::Tag::nondeterministic_seeded)) return absl::OkStatus();
  for (const char* name : {"train", "training"}) {
    const auto slot = SlotOf(name);
    if (slot.has_value() && slots_[*slot].constant.isBool() && !slots_[*slot].constant.toBool())
      return absl::OkStatus();
  }
  for (const char* name : {"dropout_p", "dropout"}) {
    const auto slot = SlotOf(name);
    if (slot.has_value() && slots_[*slot].constant.isDouble() &&
        slots_[*slot].constant.toDouble() == 0)
      return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "draws random numbers that would depend on how the batch is cut; only dropout is keyed by "
      "sample");
}

// LibTorch's backward of a group normalisation on the CPU writes the gradient of its input without
// asking whether it is wanted, if the input is laid out channels last.
void OperatorCall::AvoidUnaskedGradient(torch::jit::Stack& stack) const {
  if (!absl::StrContains(node_->target, "group_norm") || !stack[0].isTensor()) return;
  const at::Tensor input = stack[0].toTensor();
  if (input.is_cpu() && !input.is_contiguous()) stack[0] = input.contiguous();
}

absl::Status OperatorCall::Invoke(torch::jit::Stack& stack) const {
  try {
    handle_.callBoxed(stack);
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat(NameOf(*node_), ": ", error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    return FromTorch(*node_, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return FromTorch(*node_, error.what());
  }
  return absl::OkStatus();
}

absl::Status OperatorCall::Run(int64_t samples, const TensorSource& tensors,
                               std::vector<at::Tensor>& outputs, bool mixed) const {
  const std::vector<c10::Argument>& schema = handle_.schema().arguments();
  torch::jit::Stack stack;
  stack.reserve(slots_.size());
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].argument == nullptr) {
      stack.push_back(slots_[i].constant);
      continue;
    }
    auto value = ToIValue(*slots_[i].argument, schema[i], samples, tensors);
    if (!value.ok()) return Annotate(value.status(), NameOf(*node_));
    stack.push_back(*std::move(value));
  }
  if (check_ != nullptr) RETURN_IF_ERROR(Annotate(check_(handle_.schema(), stack), NameOf(*node_)));
  AvoidUnaskedGradient(stack);
  RETURN_IF_ERROR(Invoke(stack));
  const size_t first = outputs.size();
  for (c10::IValue& result : stack) {
    if (result.isTensor()) {
      outputs.push_back(std::move(result).toTensor());
    } else if (result.isTensorList()) {
      for (at::Tensor tensor : result.toTensorVector()) outputs.push_back(std::move(tensor));
    }
  }
  if (KindOfTarget(node_->target) == AtenKind::kAttention && outputs.size() > first &&
      !outputs[first].is_cpu())
    KeepGradientLayout(outputs[first]);
  const std::vector<TensorMeta>& expected = node_->outputs;
  if (outputs.size() - first != expected.size()) {
    return absl::InternalError(absl::StrCat(NameOf(*node_), ": gave ", outputs.size() - first,
                                            " tensors, the graph says ", expected.size()));
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!Matches(outputs[first + i], expected[i], samples, mixed)) {
      return absl::InternalError(absl::StrCat(
          NameOf(*node_), ": output ", i, " is ", Describe(outputs[first + i]), ", the graph says ",
          Describe(expected[i].dtype, ShapeAt(expected[i], samples)), " for ", samples,
          " samples"));
    }
  }
  return absl::OkStatus();
}

}  // namespace stagewright
