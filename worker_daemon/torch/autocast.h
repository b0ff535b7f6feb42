// Mixed precision as PyTorch's autocast has it: operators that gain by it compute in bfloat16 or
// float16, those that need it in float32, and which is which is LibTorch's own list for the device.
//
// What lies outside of a stage keeps the graph's types: parameters, the gradients of parameters,
// and the values that stages exchange, which the stage that makes them converts back, so that
// messages have the sizes that programs count with.
//
// LibTorch's own cache of weights that were cast is off: it is one for the whole process, and
// whoever leaves autocast empties it, so with several devices in a process it would be a matter of
// timing whether two uses of a tied weight share a cast, and so how their gradients are rounded.
// Weights are cast by weight_casts.h.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker_daemon/torch/precision.h"

namespace stagewright {

// While it lives, operators on tensors of such a device run in `precision` on this thread; then as
// before. Does nothing for Precision::kGraph.
class AutocastScope {
 public:
  AutocastScope(at::DeviceType device, Precision precision);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const at::DeviceType device_;
  const bool active_;
  bool enabled_ = false;
  bool cache_ = false;
  at::ScalarType dtype_ = at::kFloat;
};

}  // namespace stagewright
