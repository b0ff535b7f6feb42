#include "planner_service/evaluator/lower_bound.h"

#include <algorithm>
#include <cmath>

#include "planner_service/evaluator/bounds/joint_bound.h"
#include "planner_service/evaluator/bounds/least_costs.h"
#include "planner_service/evaluator/bounds/node_bound.h"
#include "planner_service/evaluator/bounds/work_bound.h"

namespace stagewright {

Nanos LowerBound(const Graph& graph, const OperatorGraph& operators, const Cluster& cluster,
                 const CostModel& costs, int64_t mini_batch, const BoundOptions& options) {
  const BoundProblem problem =
      MakeBoundProblem(graph, operators, cluster, costs, mini_batch, options.optimizer);
  const WorkBound work = BoundWork(problem);
  double bound = work.time;
  for (int32_t v = 0; v < graph.size(); ++v) {
    if (!problem.owned(v)) continue;  // Replicated: free.
    bound = std::max(bound, BoundNode(problem, v, options.asynchronous));
    if (!options.asynchronous) bound = std::max(bound, BoundPath(problem, v));
  }
  if (!options.asynchronous) bound = std::max(bound, BoundJointly(problem, work));
  // One part in 10^12 for the rounding of floating-point sums.
  return static_cast<Nanos>(std::floor(bound * (1 - 1e-12)));
}

}  // namespace stagewright
