// Why there is no plan, in words that a user can act on: the one place that says so for all
// planners.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "planner_service/planner/planner.h"

namespace stagewright {

// Why no strategy can do what the options ask for: a micro-batch that does not divide the
// mini-batch, or more stages than max_stages, than there are operators, or than the devices have
// room for with at most `loops` stages each (0: any number). Empty if one may. The front door
// refuses the first two before any search. O(1).
std::string ImpossibleOptions(const Problem& problem, const PlanOptions& options, int64_t loops);

// What a search knows of why it found nothing.
struct Shortfall {
  std::string scope;  // What was searched ("one stage per device"); may be empty.
  std::string need;   // What it lacked, where it knows ("the model needs 4 devices"); may be empty.
  // The evaluator's word on what came closest; OK without one, UNKNOWN for another planner's word.
  absl::Status closest;
};

// What a planner that searches a part of all strategies answers when it found none that fits:
// infeasible if nothing can fit (WhyNothingFits), else limit, for that this planner found none
// proves nothing. Where `closest` is another error than RESOURCE_EXHAUSTED, memory is not to blame
// and not spoken of. O(nodes).
Outcome NoneFound(const std::string& planner, const Problem& problem, const PlanOptions& options,
                  const Shortfall& shortfall);

}  // namespace stagewright
