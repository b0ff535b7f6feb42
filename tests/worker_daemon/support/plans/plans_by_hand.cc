#include "tests/worker_daemon/support/plans/plans_by_hand.h"

#include <gtest/gtest.h>

#include <utility>

#include "common/policies/zero_bubble.h"
#include "common/strategy/in_flight.h"
#include "common/strategy/orders.h"
#include "common/strategy/stage_edges.h"

namespace stagewright::testing {

Strategy PlanByHand(const Graph& graph, int64_t mini_batch, const std::vector<HandStage>& stages) {
  Strategy strategy;
  strategy.mini_batch = mini_batch;
  int node = 0, device = 0;
  for (const HandStage& hand : stages) {
    Stage& stage = strategy.stages.emplace_back();
    for (; node <= hand.last; ++node) stage.nodes.emplace_back(node);
    stage.micro_batch = hand.micro_batch;
    stage.recompute = hand.recompute;
    for (int r = 0; r < hand.replicas; ++r) stage.devices.emplace_back(device++);
  }
  EXPECT_EQ(node, graph.size());
  strategy.edges = StageEdges(graph, StrategyKind::kGraph, strategy.stages);
  AssignInFlight(strategy);
  return strategy;
}

Strategy SplitByHand(const Graph& graph, int64_t mini_batch, const std::vector<HandStage>& stages) {
  Strategy strategy = PlanByHand(graph, mini_batch, stages);
  auto orders = ZeroBubbleH1Orders(graph, strategy);
  EXPECT_TRUE(orders.ok()) << orders.status();
  if (orders.ok()) SetOrders(graph, *std::move(orders), strategy);
  return strategy;
}

}  // namespace stagewright::testing
