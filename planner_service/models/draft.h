// A strategy as searches edit it: stages as sets of operators, all with one micro-batch size, and
// nothing that follows from them.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner_service/planner/planner.h"

namespace stagewright {

struct DraftStage {
  std::vector<int32_t> operators;  // Planner operators, ascending; never empty.
  std::vector<int32_t> devices;    // Replica r runs on devices[r].
  bool recompute = false;
  friend auto operator<=>(const DraftStage&, const DraftStage&) = default;
};

struct Draft {
  StrategyKind kind = StrategyKind::kGraph;
  int64_t micro_batch = 1;  // Samples, over all replicas.
  std::vector<DraftStage> stages;
  friend auto operator<=>(const Draft&, const Draft&) = default;  // For sets of drafts.
};

// Equal texts are equal drafts: "g b4 | 0-5@0 | 6@1,2r".
std::string ToString(const Draft& draft);

// Lists the stages in topological order of their data dependencies, of those that are free the one
// with the smallest operator first; the stages of a sequential draft must be in such an order
// already. False, and the draft is as it was, if the dependencies have a cycle. O(size).
bool SortStages(const Dag& operators, Draft& draft);

// The strategy, with samples in flight by AssignInFlight and without orders.
// REQUIRES: SortStages succeeds.
Strategy ToStrategy(const Problem& problem, const Draft& draft);

// The draft of a strategy; nullopt if its stages differ in micro-batch size, or if they do not
// consist of whole operators.
std::optional<Draft> ToDraft(const Problem& problem, const Strategy& strategy);

}  // namespace stagewright
