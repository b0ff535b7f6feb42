#include "planner_service/planners/pfeife/infeasible.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/units.h"

namespace stagewright::pfeife {

std::string WhyInfeasible(const OperatorCosts& costs, const PlanOptions& options, double excess,
                          const std::string& rejection) {
  const Problem& problem = costs.problem();
  Bytes largest = 0;
  for (const Device& device : problem.cluster->devices())
    largest = std::max(largest, device.memory);
  const int64_t samples = std::max<int64_t>(1, options.micro_batch);
  const ShareTable& share = costs.Share(samples);
  const auto alone = [&](int32_t op) {
    return costs.resident(op) + share.saved[op] + share.workspace[op];
  };
  int32_t worst = 0;
  for (int32_t op = 1; op < costs.size(); ++op) {
    if (alone(op) > alone(worst)) worst = op;
  }
  if (alone(worst) > largest) {
    return absl::StrCat("operator \"", problem.operators->op(OperatorId(worst)).name,
                        "\" alone needs ", FormatBytes(alone(worst)), " for ", samples,
                        samples == 1 ? " sample" : " samples", ", but the largest device has ",
                        FormatBytes(largest));
  }
  Bytes resident = 0;
  for (int32_t op = 0; op < costs.size(); ++op) resident += costs.resident(op);
  std::string reason = absl::StrCat(
      "no cuts keep ", FormatBytes(resident),
      " of parameters, gradients and optimizer state and the samples in flight within ",
      problem.cluster->size(), problem.cluster->size() == 1 ? " device" : " devices", " of ",
      FormatBytes(largest));
  if (excess > 0 && excess < 1e6) {
    absl::StrAppend(&reason, "; the best exceed a device by ",
                    absl::StrFormat("%.0f %%", excess * 100));
  }
  if (!rejection.empty()) absl::StrAppend(&reason, "; closest: ", rejection);
  return reason;
}

}  // namespace stagewright::pfeife
