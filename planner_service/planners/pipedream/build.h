// From stages over layers to a strategy on devices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/strategy/strategy.h"
#include "planner_service/models/stage_oracle.h"
#include "planner_service/planners/pipedream/objective.h"

namespace stagewright::pipedream {

// Samples in flight of each stage of an asynchronous pipeline, in micro-batches of all its
// replicas: Noam, but no less than the stages from it to the end, which replicas that share a
// micro-batch need to be all busy, and no more than the stage before it has.
std::vector<int64_t> AsynchronousInFlight(const std::vector<int32_t>& replicas);

// A sequential strategy. On one level, neighbouring stages are placed next to each other; on two,
// a stage of the outer level takes whole nodes, and the replicas of its inner stages lie in each of
// them. REQUIRES: at most two levels; replicas no more than `micro_batch`.
Strategy BuildStrategy(const StageOracle& oracle, const std::vector<PlannedStage>& stages,
                       int64_t micro_batch, bool asynchronous);

// "[0-5]x7 [6]x1", by numbers of layers; inner stages in brackets of their own.
std::string ToString(const std::vector<PlannedStage>& stages);

}  // namespace stagewright::pipedream
