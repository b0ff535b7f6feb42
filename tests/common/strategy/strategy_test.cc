#include "common/strategy/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/strategy/check_strategy.h"
#include "tests/support/clusters.h"
#include "tests/support/graph_builder.h"
#include "tests/support/layer_graphs.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::ChainGraph;
using ::testing::ElementsAre;
using testing::GraphBuilder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::LinearGraph;
using testing::MakeStages;

StageEdge Edge(int64_t from, int64_t to) { return {StageId(from), StageId(to)}; }
ValueRef Value(int64_t node) { return {NodeId(node), 0}; }

TEST(ReplicaShare, TilesTheMicroBatchAsEvenlyAsPossible) {
  for (int64_t size = 1; size <= 20; ++size) {
    for (int32_t replicas = 1; replicas <= size; ++replicas) {
      int64_t end = 7;
      for (int32_t r = 0; r < replicas; ++r) {
        const SampleRange share = ReplicaShare({7, 7 + size}, r, replicas);
        EXPECT_EQ(share.begin, end);
        EXPECT_EQ(share.size(), size / replicas + (r < size % replicas ? 1 : 0));
        end = share.end;
      }
      EXPECT_EQ(end, 7 + size);
    }
  }
}

TEST(DataEdges, FollowTheArgumentsIncludingSkips) {
  // 0 -> 1 -> 2 -> loss, and a skip 0 -> 2.
  const Graph graph = LinearGraph({{}, {0}, {0, 1}});
  const Strategy strategy = MakeStages(graph, 1, {{{0}, {0}}, {{1}, {1}}, {{2, 3}, {2}}});
  EXPECT_THAT(strategy.edges, ElementsAre(Edge(0, 1), Edge(0, 2), Edge(1, 2)));
  EXPECT_THAT(EdgeValues(graph, strategy, Edge(0, 2)), ElementsAre(Value(0)));
  EXPECT_THAT(EdgeValues(graph, strategy, Edge(1, 2)), ElementsAre(Value(1)));
}

TEST(DataEdges, ReplicatedNodesDoNotCross) {
  GraphBuilder builder("mask");
  const Argument x = builder.Feature("x", {1});
  const Argument mask = builder.Add("aten.gt.Scalar", {x, testing::Number(0)}, {1});  // Node 0
  const Argument first = builder.Linear(x, 1, 1);                                     // 1
  const Argument masked = builder.Add("aten.mul.Tensor", {first, mask}, {1});         // 2
  const Argument second = builder.Linear(masked, 1, 1);                               // 3
  builder.Loss(builder.Add("aten.mul.Tensor", {second, mask}, {1}), {1});             // 4, 5
  const Graph graph = builder.Build();
  Strategy strategy = MakeStages(graph, 1, {{{1, 2}, {0}}, {{3, 4, 5}, {1}}});
  strategy.stages[0].replicated = strategy.stages[1].replicated = {NodeId(0)};
  EXPECT_THAT(strategy.edges, ElementsAre(Edge(0, 1)));
  EXPECT_THAT(EdgeValues(graph, strategy, Edge(0, 1)), ElementsAre(Value(2)));
  EXPECT_EQ(CheckStrategy(graph, testing::TestCluster(2), strategy), absl::OkStatus());
}

TEST(EdgeValues, ChainEdgesWithoutDataAreEmptyAndProfiledNodesHaveOneValue) {
  GraphData data;
  for (int i = 0; i < 3; ++i) {
    Node node;
    node.name = "n" + std::to_string(i);
    node.cost = ProfiledCost{};
    data.nodes.push_back(node);
  }
  data.nodes[2].after = {NodeId(0), NodeId(1)};
  const Graph graph = *Graph::Create(data);
  const Strategy strategy =
      MakeStages(graph, 1, {{{0}, {0}}, {{1}, {1}}, {{2}, {2}}}, StrategyKind::kSequential);
  EXPECT_THAT(strategy.edges, ElementsAre(Edge(0, 1), Edge(0, 2), Edge(1, 2)));
  EXPECT_THAT(EdgeValues(graph, strategy, Edge(0, 1)), IsEmpty());
  EXPECT_THAT(EdgeValues(graph, strategy, Edge(0, 2)), ElementsAre(Value(0)));
}

TEST(StageGraph, NamesTheStagesOfACycle) {
  const Graph graph = ChainGraph(2);
  Strategy strategy = MakeStages(graph, 1, {{{0}, {0}}, {{1, 2}, {1}}});
  strategy.edges.push_back(Edge(1, 0));
  const auto dag = StageGraph(strategy);
  EXPECT_EQ(dag.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(dag.status().message()), HasSubstr("stage graph: cycle"));
}

}  // namespace
}  // namespace stagewright
