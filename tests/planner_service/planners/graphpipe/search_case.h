// A planning problem with the parts of a search over it.
#pragma once

#include <memory>
#include <vector>

#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "common/graph/series_parallel.h"
#include "planner_service/planners/graphpipe/build_strategy.h"
#include "planner_service/planners/graphpipe/recurrence/partition_search.h"

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
        frontier(TransitiveReduction(operators.dag(), Reachability(operators.dag())), order),
        ranges(oracle, frontier) {}
  SearchCase(const SearchCase&) = delete;

  PartitionSearch Search(std::vector<StageConfig> configs, PartitionOptions options) const {
    return PartitionSearch(ranges, std::move(configs), std::move(options), context);
  }

  Layout Place(const Partition& partition, StrategyKind kind = StrategyKind::kGraph) const {
    return MakeLayout(oracle, partition, kind, {});
  }
  Strategy Build(const Partition& partition, const Layout& layout) const {
    return BuildStrategy(oracle, partition, layout, StrategyKind::kGraph);
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
  mutable StageRanges ranges;
  SearchContext context;
};

}  // namespace stagewright::testing
