// In which floating-point types the forward and backward passes of a job compute. Parameters,
// gradients, sums over devices and optimizer state keep the types of the graph.
#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/training/names.h"

namespace stagewright {

enum class Precision {
  kGraph,     // Those of the graph.
  kBFloat16,  // Mixed: as PyTorch's autocast has it.
  kFloat16,   // The same, with a scaled loss.
};

inline constexpr Named<Precision> kPrecisionNames[] = {
    {Precision::kGraph, "graph"}, {Precision::kBFloat16, "bf16"}, {Precision::kFloat16, "fp16"}};

// How the factor changes by which a loss in float16 is multiplied, so that small gradients do not
// vanish. The rule and its constants are those of torch.amp.GradScaler.
struct LossScaleRule {
  double initial = 65536;
  double growth = 2;     // After `interval` good steps in a row.
  double backoff = 0.5;  // After a bad one.
  int64_t interval = 2000;
  // The loss itself is finite, and gradients are not although the factor has fallen to this: then
  // it is not the factor that spoils them.
  double least = 0x1p-24;

  friend bool operator==(const LossScaleRule&, const LossScaleRule&) = default;
};

// INVALID_ARGUMENT if the graph trains a parameter that is not float32, naming it: the parameters
// are the exact copy that updates add up in, and autocast leaves float64 alone. The same for
// float16 with an asynchronous plan. `of` goes before the field.
absl::Status Check(Precision precision, const Graph& graph, bool asynchronous,
                   absl::string_view of = "");

}  // namespace stagewright
