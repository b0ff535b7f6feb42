// The model in one stage: the plan that needs no search, and that every search begins with so that
// a deadline leaves an answer.
#pragma once

#include <cstdint>
#include <vector>

#include "planner_service/models/stage_oracle.h"
#include "planner_service/search/judge.h"

namespace stagewright {

// All operators in one stage on `devices`, one micro-batch of so many samples in flight. O(nodes).
Strategy OneStage(const Problem& problem, const std::vector<DeviceId>& devices,
                  int64_t micro_batch);

struct OneStageChoice {
  int32_t replicas = 1;
  int64_t micro_batch = 1;  // Samples of all replicas together.
  bool recompute = false;
};

// One stage on one device and, where replicas are allowed, on all that get a sample each: with the
// largest micro-batch that the oracle finds room for, recomputing only if none fits otherwise and
// `recompute` lets it. At most one choice per number of replicas; none if more stages are asked
// for. O(operators) per micro-batch size.
std::vector<OneStageChoice> OneStageChoices(const StageOracle& oracle, const PlanOptions& options,
                                            RecomputePolicy recompute);

// The choices without recomputation as proposals on the first devices; estimates are 0.
std::vector<Proposal> OneStageProposals(const StageOracle& oracle, const PlanOptions& options);

}  // namespace stagewright
