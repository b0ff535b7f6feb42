// A planning problem with the parts of a search over it.
#pragma once

#include <memory>
#include <vector>

#include "common/graph/series_parallel.h"
#include "planner_service/planners/graphpipe/partition_search.h"
#include "tests/support/planning_cases.h"

namespace stagewright::testing {

struct SearchCase {
  SearchCase(Graph the_graph, Cluster the_cluster, int64_t mini_batch,
             Optimizer optimizer = Optimizer::kSgd)
      : graph(std::move(the_graph)),
        cluster(std::move(the_cluster)),
        costs(MakeAnalyticCostModel(graph)),
        operators(*OneOperatorPerNode(graph)),
        problem{&graph, &operators, &cluster, costs.get(), mini_batch, optimizer},
        tree(Decompose(operators.dag())),
        order(Linearize(tree)),
        oracle(problem, std::vector<OperatorId>(order.begin(), order.end())),
        frontier(TransitiveReduction(operators.dag(), Reachability(operators.dag())), order) {}
  SearchCase(const SearchCase&) = delete;

  PartitionSearch Search(std::vector<StageConfig> configs, PartitionOptions options) const {
    return PartitionSearch(oracle, frontier, std::move(configs), std::move(options), context);
  }

  Graph graph;
  Cluster cluster;
  std::unique_ptr<CostModel> costs;
  OperatorGraph operators;
  Problem problem;
  SpTree tree;
  std::vector<int32_t> order;
  StageOracle oracle;
  Frontier frontier;
  SearchContext context;
};

}  // namespace stagewright::testing
