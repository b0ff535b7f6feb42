// A problem with all that it refers to, for tests of searches.
#pragma once

#include <memory>
#include <utility>

#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "planner_service/planner/planner.h"

namespace stagewright::testing {

struct SearchCase {
  SearchCase(Graph g, Cluster c, int64_t mini_batch) : graph(std::move(g)), cluster(std::move(c)) {
    operators = *OneOperatorPerNode(graph);
    costs = MakeAnalyticCostModel(graph);
    problem = {&graph, &operators, &cluster, costs.get(), mini_batch, Optimizer::kSgd};
  }
  SearchCase(const SearchCase&) = delete;

  Graph graph;
  Cluster cluster;
  OperatorGraph operators;
  std::unique_ptr<CostModel> costs;
  Problem problem;
};

}  // namespace stagewright::testing
