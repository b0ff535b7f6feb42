// What the tests of Pfeife's parts share: a problem with all it refers to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "common/cost/analytic.h"
#include "planner_service/planners/pfeife/chain_model.h"
#include "planner_service/planners/pfeife/linear_orders.h"
#include "planner_service/planners/pfeife/split_search.h"

namespace stagewright::pfeife {

struct Case {
  Case(Graph g, Cluster c, int64_t mini_batch)
      : graph(std::move(g)),
        cluster(std::move(c)),
        operators(OneOperatorPerNode(graph).value()),
        costs(MakeAnalyticCostModel(graph)),
        problem{&graph, &operators, &cluster, costs.get(), mini_batch},
        table(problem) {}
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  Graph graph;
  Cluster cluster;
  OperatorGraph operators;
  std::unique_ptr<CostModel> costs;
  Problem problem;
  OperatorCosts table;
};

// 0, 1, ..., count - 1.
inline std::vector<int32_t> Devices(int32_t count) {
  std::vector<int32_t> devices(count);
  std::iota(devices.begin(), devices.end(), 0);
  return devices;
}

// The best estimate over all shapes with up to `loops` loops and the published planner's order and
// rules, ns: what its own output is compared with.
inline double BestEstimate(const Case& c, int32_t devices, int32_t micro_batches, int32_t loops,
                           const BeamOptions& options, Effort& effort, bool own_order = false) {
  SearchContext context;
  double best = std::numeric_limits<double>::max();
  for (int32_t l = 1; l <= loops && l * devices <= c.operators.size(); ++l) {
    const auto orders = LinearOrders(c.table, 1, l * devices);
    ChainModel model(c.table, own_order ? orders.back() : orders.front(), 1,
                     {.one_ratio = true, .per_reader = true});
    SplitSearch search(model, Devices(devices), options, context, effort);
    std::vector<std::vector<int32_t>> starts = {model.EvenTime(l * devices),
                                                model.EvenMemory(l * devices)};
    for (const LoopedShape& shape : PossibleShapes(devices, l, micro_batches)) {
      const auto found = search.Run(shape, starts);
      if (found.empty()) continue;
      starts.push_back(found.front().points);
      best = std::min(best, found.front().time);
    }
  }
  return best;
}

}  // namespace stagewright::pfeife
