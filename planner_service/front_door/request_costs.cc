#include "planner_service/front_door/request_costs.h"

#include <utility>

#include "common/cost/analytic.h"
#include "common/cost/measured/profiled_model.h"

namespace stagewright {

std::unique_ptr<CostModel> MakeCosts(const PlanRequest& request, const Graph& graph) {
  std::unique_ptr<CostModel> analytic = MakeAnalyticCostModel(graph, request.precision);
  if (request.profile == nullptr) return analytic;
  return MakeProfiledCostModel(graph, request.cluster->kinds(), *request.profile,
                               std::move(analytic));
}

}  // namespace stagewright
