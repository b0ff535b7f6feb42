// One node of the graph bound to an operator of LibTorch: found by name in the dispatcher, its
// constant arguments converted once.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "worker_daemon/torch/arguments.h"
#include "worker_daemon/torch/operand_checks.h"

namespace stagewright {

// "node \"layer1\" (aten.linear.default)".
std::string NameOf(const Node& node);

// Whether runs in training change buffers that the node is given: statistics of normalisations. No
// other operator that may be run changes what it is given.
bool ChangesBuffers(const Node& node);

class OperatorCall {
 public:
  // NOT_FOUND if LibTorch has no such operator; INVALID_ARGUMENT if it is not allowed
  // (common/graph/operators), if the arguments do not fit its schema, if it changes its arguments
  // in place, or if it draws random numbers that depend on how the batch is cut. Each names node
  // and target. Operators that take a device get `device`. In evaluation (`training` false) dropout
  // and batch statistics are switched off. `parameters` gives the tensors of ParameterId arguments.
  static absl::StatusOr<OperatorCall> Bind(const Node& node, at::Device device, bool training,
                                           const TensorSource& parameters);

  // Runs the operator and appends its outputs, as many as the node has. Errors name the node:
  // INVALID_ARGUMENT if the operator must not be called with the tensors (operand_checks.h);
  // INTERNAL, with LibTorch's message, if it fails or gives other shapes than the graph says, or
  // other types; with `mixed` these may be any floating-point ones.
  absl::Status Run(int64_t samples, const TensorSource& tensors, std::vector<at::Tensor>& outputs,
                   bool mixed = false) const;

  // Bound for evaluation, it behaves otherwise than in training.
  bool evaluates_otherwise() const { return evaluates_otherwise_; }
  // As ChangesBuffers of the node.
  bool changes_buffers() const { return ChangesBuffers(*node_); }

 private:
  // One argument of the schema: a constant, or an argument converted at each call.
  struct Slot {
    c10::IValue constant;
    const Argument* argument = nullptr;
  };
  OperatorCall(const Node& node, c10::OperatorHandle handle)
      : node_(&node), handle_(std::move(handle)), check_(OperandCheckOf(handle_.schema().name())) {}
  absl::Status BindArguments(at::Device device, const TensorSource& parameters);
  void SwitchOffTraining();
  absl::Status CheckRandomness() const;
  void AvoidUnaskedGradient(torch::jit::Stack& stack) const;
  absl::Status Invoke(torch::jit::Stack& stack) const;
  std::optional<size_t> SlotOf(const char* name) const;

  const Node* node_;
  c10::OperatorHandle handle_;
  OperandCheck check_;  // Null for most.
  std::vector<Slot> slots_;
  bool evaluates_otherwise_ = false;
};

}  // namespace stagewright
