// Plans written by hand: JSON as docs/planners/manual.md describes it.
#pragma once

#include <string>

#include "common/base/status.h"
#include "planner_service/planner/planner.h"

namespace stagewright {

// Where errors say that a plan is.
inline constexpr char kManualField[] = "options.manual";

// The strategy that `text` describes for the problem. INVALID_ARGUMENT names kManualField and the
// path within the plan if it is none: unknown fields, nodes and devices, a node in no or in two
// stages, micro-batches that do not divide the mini-batch. Whether the strategy is valid is the
// evaluator's to say. O(size of graph and text, times the number of selectors of nodes).
//
// A problem that has no devices yet has neither cluster nor operators. Nothing is refused then that
// some cluster takes: numbers of devices have to be below Cluster::kMostDevices; names stand for
// numbers in the order in which they come, from 0 on, or from kMostDevices on beside numbers, which
// may mean the same devices, so that orders are left out; and nodes that every reader may recompute
// belong to no stage, which leaves a stage of nothing else without nodes.
absl::StatusOr<Strategy> ParseManualPlan(const Problem& problem, const std::string& text);

}  // namespace stagewright
