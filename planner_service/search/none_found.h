// What a planner that searches a part of all strategies answers when it found none that fits.
#pragma once

#include <string>

#include "planner_service/planner/planner.h"

namespace stagewright {

// Infeasible if nothing can fit (WhyNothingFits), else limit: that this planner found none proves
// nothing. `scope` says what was searched ("one stage per device"; may be empty), `closest` is the
// evaluator's word on what came closest, OK without one: after FAILED_PRECONDITION, memory is not
// to blame and not spoken of. O(nodes).
Outcome NoneFound(const std::string& planner, const Problem& problem, const std::string& scope,
                  const absl::Status& closest);

}  // namespace stagewright
