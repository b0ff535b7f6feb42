#include "tests/worker_daemon/support/plans/lowered_programs.h"

#include <utility>

#include "common/base/status.h"
#include "common/cost/analytic.h"
#include "common/cost/cost_model.h"
#include "common/lowering/lower.h"
#include "common/validation/validate.h"

namespace stagewright::testing {

absl::StatusOr<Programs> LowerBoth(const Graph& graph, const Strategy& strategy,
                                   bool gradient_norm) {
  const std::unique_ptr<CostModel> costs = MakeAnalyticCostModel(graph);
  ASSIGN_OR_RETURN(Program training, Lower(graph, strategy, *costs,
                                           {.training = true, .gradient_norm = gradient_norm}));
  RETURN_IF_ERROR(Annotate(Validate(training, {}), "training"));
  ASSIGN_OR_RETURN(Program evaluation, Lower(graph, strategy, *costs, {.training = false}));
  RETURN_IF_ERROR(Annotate(Validate(evaluation, {}), "evaluation"));
  return Programs{std::make_shared<const Program>(std::move(training)),
                  std::make_shared<const Program>(std::move(evaluation))};
}

}  // namespace stagewright::testing
