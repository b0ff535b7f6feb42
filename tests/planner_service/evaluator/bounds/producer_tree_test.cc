#include "planner_service/evaluator/bounds/producer_tree.h"

#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using testing::ProfiledGraph;

// A node that two branches read, which meet again; the first branch is frozen with its source.
Graph Diamond() {
  return ProfiledGraph({{10, 20, 1000, 400, {}},
                        {30, 40, 2000, 0, {0}},
                        {50, 60, 3000, 800, {0}},
                        {70, 80, 4000, 0, {1, 2}}});
}

struct Asked {
  explicit Asked(const Graph& graph)
      : cluster(FlatCluster(2)),
        operators(OneOperatorPerNode(graph).value()),
        costs(MakeAnalyticCostModel(graph)),
        problem(MakeBoundProblem(graph, operators, cluster, *costs, 4, Optimizer::kSgd)) {}
  Cluster cluster;
  OperatorGraph operators;
  std::unique_ptr<CostModel> costs;
  BoundProblem problem;
};

TEST(ProducerTreeTest, EveryAncestorIsThereOnce) {
  const Graph graph = Diamond();
  const Asked asked(graph);
  const ProducerTree tree = ProducersOf(asked.problem, FirstUses(asked.problem), 3, 10);
  ASSERT_EQ(tree.size(), 4u);
  EXPECT_EQ(tree[0].node, 3);
  EXPECT_EQ(tree[0].parent, -1);
  EXPECT_DOUBLE_EQ(tree[0].work, 150);
  EXPECT_EQ(tree[1].node, 1);
  EXPECT_DOUBLE_EQ(tree[1].activation, 2000);
  EXPECT_DOUBLE_EQ(tree[1].gradient, 2000);
  EXPECT_EQ(tree[2].node, 2);
  EXPECT_DOUBLE_EQ(tree[2].parameters, 800);
  // Read by both branches; the first is its parent.
  EXPECT_EQ(tree[3].node, 0);
  EXPECT_EQ(tree[3].parent, 1);
  EXPECT_DOUBLE_EQ(tree[3].activation, 1000);
}

TEST(ProducerTreeTest, OnlyTheNearest) {
  const Graph graph = Diamond();
  const Asked asked(graph);
  EXPECT_EQ(ProducersOf(asked.problem, FirstUses(asked.problem), 3, 3).size(), 3u);
}

TEST(ProducerTreeTest, FrozenProducersGetNoGradient) {
  const Graph graph = ProfiledGraph({{10, 0, 1000, 0, {}}, {10, 20, 0, 8, {0}}});
  const Asked asked(graph);
  const ProducerTree tree = ProducersOf(asked.problem, FirstUses(asked.problem), 1, 10);
  ASSERT_EQ(tree.size(), 2u);
  EXPECT_DOUBLE_EQ(tree[1].activation, 1000);
  EXPECT_DOUBLE_EQ(tree[1].gradient, graph.needs_backward(NodeId(0)) ? 1000 : 0);
}

}  // namespace
}  // namespace stagewright
