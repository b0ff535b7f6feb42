// Why a plan takes as long as it does: what binds, what each cut costs, what would help. Every
// figure is a re-simulation of the plan with one thing changed, never an estimate.
//
// With T the time of a step, T0 the same with links that take no time, and W the compute time of
// the busiest device, T = W + (T - T0) + (T0 - W): compute, links, and waiting. The part of the
// waiting that goes away when memory does not count (all samples in flight that the schedule can
// use, nothing recomputed) is memory's; the rest is the bubble. The largest of the four binds.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/units.h"
#include "common/cost/cost_model.h"
#include "common/cost/parameters.h"
#include "common/graph/graph.h"
#include "common/graph/operator_graph.h"
#include "common/strategy/strategy.h"
#include "common/topology/cluster.h"

namespace stagewright {

enum class Binding { kCompute, kLinks, kMemory, kBubble };
const char* BindingName(Binding binding);  // "compute", "links", "memory", "bubble"

// The plan with one change.
struct WhatIf {
  std::string change;              // "b0_layer3 to stage 1", "links twice as fast"
  std::optional<Nanos> step_time;  // Absent where the changed plan is not valid.
  std::string reason;              // Then: why, in a line.
};

// The border between two stages, moved by one operator either way; of several operators that can
// be moved, the one with which the plan is fastest. A side with none has a reason and no change.
struct CutReport {
  StageId from;
  StageId to;
  WhatIf smaller;  // `from` gives an operator to `to`.
  WhatIf larger;   // `to` gives one to `from`.
};

struct Explanation {
  Nanos step_time = 0;
  // T = compute + links + memory + bubble.
  Nanos compute = 0;
  Nanos links = 0;
  Nanos memory = 0;
  Nanos bubble = 0;
  Binding binding = Binding::kCompute;
  StageId bottleneck;             // The stage with most compute on the busiest device.
  std::string bottleneck_device;  // The busiest device, by name; the first of several.
  // By edge of the strategy that carries data, those at which an operator can be moved.
  std::vector<CutReport> cuts;
  int32_t cuts_left_out = 0;  // Not judged: the limit was reached.
  // What would help, most first: links, latency, devices (faster, more), memory, micro-batches.
  std::vector<WhatIf> levers;
};

struct ExplainOptions {
  Optimizer optimizer = Optimizer::kAdam;
  int32_t most_trials = 400;  // How many cuts are tried, a simulation each.
  // Asked before each simulation; true ends the explanation early (the rest counts as left out).
  std::function<bool()> expired;
};

// Errors as Evaluate's for the strategy itself. `operators` are what planners move: cuts between
// them only. Deterministic. O(edges * operators at a border * one evaluation).
absl::StatusOr<Explanation> Explain(const Graph& graph, const OperatorGraph& operators,
                                    const Cluster& cluster, const CostModel& costs,
                                    const Strategy& strategy, const ExplainOptions& options = {});

// For people: a few lines, stages by number, operators by name.
std::string ToText(const Explanation& explanation);

}  // namespace stagewright
