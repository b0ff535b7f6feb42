// What planners answer, as `stagewright plan` prints it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "planner_service/front_door/front_door.h"
#include "tests/golden/plans/table.h"

namespace stagewright::golden {

// Every planner of the table of planners, then "manual", which is given what graphpipe answered.
// drl_pp is not among them: it learns on LibTorch, whose sums depend on the processor.
std::vector<std::string> PlanColumns();

// Whether a planner is asked.
using Wanted = std::function<bool(const std::string& planner)>;

// A digest of text and JSON with the step time for each planner that is wanted. The figures of the
// search itself (seconds, states, candidates) are left out. Searches end after an effort
// (SearchContext) that few reach. `request.planner` does not matter.
absl::StatusOr<Cells> AskPlanners(PlanRequest request, const Wanted& wanted);

}  // namespace stagewright::golden
