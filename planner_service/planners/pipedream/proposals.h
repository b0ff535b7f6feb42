// What planners that cut a chain have in common around their search: the sizes of micro-batches
// worth a search, the plans that need none, and the answer.
#pragma once

#include <cstdint>
#include <vector>

#include "planner_service/planners/pipedream/judge.h"
#include "planner_service/search/stage_oracle.h"

namespace stagewright {

// At most `most` of the sizes that the options allow, the most promising first: those with the
// least time for all micro-batches and a short fill of the pipeline.
std::vector<int64_t> PromisingSizes(const StageOracle& oracle, const PlanOptions& options,
                                    size_t most, const SearchContext& context);

// The model in one stage on one device and, where replicas are allowed, on all, each with the
// largest micro-batch that fits. Empty if more stages are asked for or nothing fits.
std::vector<Proposal> OneStageProposals(const StageOracle& oracle, const PlanOptions& options);

// The outcome of a search that ended: limit if the context expired, else feasible or infeasible.
Outcome Conclude(const StageOracle& oracle, const PlanOptions& options, const Judge& judge,
                 const SearchContext& context);

}  // namespace stagewright
