// Mixed precision as PyTorch's autocast has it: operators that gain by it compute in bfloat16 or
// float16, those that need it in float32, and which is which is LibTorch's own list for the device.
//
// What lies outside of a stage keeps the graph's types: parameters, the gradients of parameters,
// and the values that stages exchange, which the stage that makes them converts back, so that
// messages have the sizes that programs count with.
//
// The results of casting weights are not kept from one operator to the next. LibTorch's cache for
// that is one for the whole process, and whoever leaves autocast empties it: with several devices
// in a process, whether two uses of a tied weight share a cast, and so how their gradients are
// rounded, would be a matter of timing.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker_daemon/engine/precision.h"

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
