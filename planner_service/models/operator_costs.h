// The cost table of a problem.
#pragma once

#include "common/cost/cost_table.h"
#include "planner_service/planner/planner.h"

namespace stagewright {

class OperatorCosts : public CostTable {
 public:
  // The problem must outlive the costs. O(nodes + reads).
  explicit OperatorCosts(const Problem& problem)
      : CostTable(*problem.graph, *problem.operators, *problem.cluster, *problem.costs,
                  problem.optimizer, problem.optimizer_sharding),
        problem_(&problem) {}

  const Problem& problem() const { return *problem_; }

 private:
  const Problem* problem_;
};

}  // namespace stagewright
