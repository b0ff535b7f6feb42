// Plans that `--plan-file` takes.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/graph/operator_split.h"
#include "stagewright/v1/planner_service.pb.h"

namespace stagewright::cli {

struct PlanFile {
  std::string plan;                   // By hand.
  std::vector<OperatorSplit> splits;  // "split_operators": what is cut before.
  // Devices of the cluster that the plan was found for, in its order; none of a plan by hand.
  std::vector<std::string> found_for;
};

// The text of a plan by hand (docs/planners/manual.md) from a file that holds one, what
// `plan -o json` printed, or what `plan --save` wrote. Of the last two, the best plan.
// INVALID_ARGUMENT, naming the file, if there is no plan in it.
absl::StatusOr<PlanFile> ReadPlanFile(const std::string& path);

// What the plan that `plan --save` wrote was made from. INVALID_ARGUMENT, naming the file, if it
// does not say so.
absl::StatusOr<v1::PlanBasis> ReadPlanBasis(const std::string& path);

// Asks for that plan, and says what it was found for. Operators that are named to be cut already
// are cut instead of the file's.
absl::Status SetManualPlan(const std::string& path, v1::PlanOptions& options);

}  // namespace stagewright::cli
