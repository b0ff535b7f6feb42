// Plans written by hand: JSON as docs/planners/manual.md describes it.
#pragma once

#include <string>

#include "common/base/status.h"
#include "planner_service/planner/planner.h"

namespace stagewright {

// The strategy that `text` describes for the problem. INVALID_ARGUMENT, starting with the path of
// the field, for text that is no plan: unknown fields, nodes and devices, a node in no or in two
// stages, micro-batches that do not divide the mini-batch. Whether the strategy is valid and fits
// is the evaluator's to say. O(size of graph and text, times the number of selectors of nodes).
absl::StatusOr<Strategy> ParseManualPlan(const Problem& problem, const std::string& text);

}  // namespace stagewright
