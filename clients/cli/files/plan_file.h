// Plans that `--plan-file` takes.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/graph/operator_split.h"
#include "stagewright/v1/planner_service.pb.h"

namespace stagewright::cli {

struct PlanFile {
  std::string plan;                   // By hand.
  std::vector<OperatorSplit> splits;  // "split_operators": what is cut before.
  // Those that a plan that was found gives work, in the order of its cluster.
  std::vector<std::string> found_for;
};

// The text of a plan by hand (docs/planners/manual.md) from a file that holds one, what
// `plan -o json` printed, or what `plan --save` wrote. Of the last two, the best plan.
// INVALID_ARGUMENT, naming the file, if there is no plan in it.
absl::StatusOr<PlanFile> ReadPlanFile(const std::string& path);

// What the plan that `plan --save` wrote was made from. INVALID_ARGUMENT, naming the file, if it
// does not say so.
absl::StatusOr<v1::PlanBasis> ReadPlanBasis(const std::string& path);

// Asks for that plan. Operators that are named to be cut already are cut instead of the file's.
absl::Status SetManualPlan(const std::string& path, v1::PlanOptions& options);

// The plan by numbers 0, 1, ... of its devices, if it was found for a cluster of which no device is
// among those that are connected, such as a preset, and needs no more than there are: a job then
// takes the first that are free. Otherwise, and by hand, as it is.
std::string PlanForConnected(const PlanFile& file, const std::set<std::string>& connected);

}  // namespace stagewright::cli
