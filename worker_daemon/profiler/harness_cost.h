// What timing an operator by itself adds to its time.
#pragma once

#include <ATen/core/Tensor.h>

#include "common/base/status.h"

namespace stagewright {

// In nanoseconds a link of an OperatorChain.
struct HarnessCost {
  double forward = 0;
  double backward = 0;
};

// Each link of a chain is a root of the backward pass and ends in a node that drops its gradient,
// where operators of a stage follow each other. That is the difference between a tiny operator's
// links apart and in a row. Takes some milliseconds. Errors are those of OperatorChain.
absl::StatusOr<HarnessCost> MeasureHarness(at::Device device);

}  // namespace stagewright
