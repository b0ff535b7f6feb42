// Strategy -> Program. The only place where a schedule is made.
//
// A strategy's explicit orders (Strategy::orders) are the compute lanes. Without them each stage
// runs forwards in sample order until `in_flight` samples are in flight, then alternates
// k backwards and k forwards (GraphPipe section 6, SCHEDULETASK), then drains. Where neighbouring
// stages differ in micro-batch size or replication, transfers are the intersections of their sample
// ranges. The sender's place decides nothing: for each send the matching receive is placed in the
// peer's program, in the order of the peer's compute lane, and may be posted at most two compute
// actions ahead of its use, so that received bytes stay bounded. All-reduces and optimizer steps
// follow the last backward pass, or its weight half.
//
// Memory: a forward acquires the tensors its backward will need; the backward releases them and the
// received activations and gradients; a gradient acquired by a backward is released when it has
// been sent. Of a split backward pass the input half makes the gradients that are sent; whatever
// the pass reads (saved tensors, received activations and gradients) stays until the weight half,
// as the engine keeps a micro-batch's autograd graph until then.
#pragma once

#include "common/base/status.h"
#include "common/cost/cost_model.h"
#include "common/graph/graph.h"
#include "common/schedule/program.h"
#include "common/strategy/strategy.h"

namespace stagewright {

struct LowerOptions {
  Optimizer optimizer = Optimizer::kAdam;
  bool training = true;  // False: forward only.
};

// `strategy` satisfies CheckStrategy. INVALID_ARGUMENT if a tensor that has no batch dimension
// would have to be split (names it). O(actions).
absl::StatusOr<Program> Lower(const Graph& graph, const Strategy& strategy, const CostModel& costs,
                              const LowerOptions& options);

}  // namespace stagewright
