#include "planner_service/evaluator/lower_bound.h"

#include <algorithm>
#include <cmath>

#include "planner_service/evaluator/bounds/join_bound.h"
#include "planner_service/evaluator/bounds/joint_bound.h"
#include "planner_service/evaluator/bounds/least_costs.h"
#include "planner_service/evaluator/bounds/node_bound.h"
#include "planner_service/evaluator/bounds/packing_bound.h"
#include "planner_service/evaluator/bounds/work_bound.h"

namespace stagewright {
namespace {

// One part in 10^12 for the rounding of floating-point sums.
Nanos Rounded(double bound) { return static_cast<Nanos>(std::floor(bound * (1 - 1e-12))); }

}  // namespace

Nanos BoundParts::Largest() const { return std::max({work, node, packing, path, joint, join}); }

BoundParts BoundPartsOf(const Graph& graph, const OperatorGraph& operators, const Cluster& cluster,
                        const CostModel& costs, int64_t mini_batch, const BoundOptions& options) {
  const BoundProblem problem = MakeBoundProblem(graph, operators, cluster, costs, mini_batch,
                                                options.optimizer, options.sharding);
  const WorkBound work = BoundWork(problem);
  double node = 0;
  double path = 0;
  for (int32_t v = 0; v < graph.size(); ++v) {
    if (!problem.owned(v)) continue;  // Replicated: free.
    node = std::max(node, BoundNode(problem, v, options.asynchronous));
    path = std::max(path, BoundPath(problem, v));
  }
  BoundParts parts;
  parts.work = Rounded(work.time);
  parts.node = Rounded(node);
  parts.packing = Rounded(BoundPacking(problem, std::max(work.time, node), options.asynchronous));
  if (options.asynchronous) return parts;
  parts.path = Rounded(path);
  const double joint = BoundJointly(problem, work);
  parts.joint = Rounded(joint);
  parts.join = Rounded(BoundJoins(
      problem, std::max({work.time, node, path, joint, static_cast<double>(parts.packing)})));
  return parts;
}

Nanos LowerBound(const Graph& graph, const OperatorGraph& operators, const Cluster& cluster,
                 const CostModel& costs, int64_t mini_batch, const BoundOptions& options) {
  return BoundPartsOf(graph, operators, cluster, costs, mini_batch, options).Largest();
}

}  // namespace stagewright
