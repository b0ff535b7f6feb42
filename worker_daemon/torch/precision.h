// In which floating-point types a job computes. No LibTorch here.
#pragma once

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/program/program.h"

namespace stagewright {

enum class Precision {
  kGraph,     // Those of the graph.
  kBFloat16,  // Mixed: autocast.h.
  kFloat16,   // Mixed, with a scaled loss: loss_scale.h.
};

// INVALID_ARGUMENT if the graph trains a parameter that is not float32, naming it: the parameters
// are the exact copy that updates add up in, and autocast leaves float64 alone. The same for
// float16 with an asynchronous program, in which devices cannot agree on a scale of the loss.
absl::Status CheckPrecision(const Graph& graph, const Program& program, Precision precision);

}  // namespace stagewright
