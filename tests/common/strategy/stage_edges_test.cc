#include "common/strategy/stage_edges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/layer_graphs.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;

StageEdge Edge(int64_t from, int64_t to) { return {StageId(from), StageId(to)}; }

// Nodes 0 and 1 read the sample, 2 reads both, and the loss reads 2: no data from stage 0 to 1.
TEST(StageEdgesTest, SequentialStagesAreChainedWhereNoDataFlows) {
  const Graph graph = testing::LinearGraph({{}, {}, {0, 1}});
  std::vector<Stage> stages(3);
  stages[0].nodes = {NodeId(0)};
  stages[1].nodes = {NodeId(1)};
  stages[2].nodes = {NodeId(2), NodeId(3)};
  EXPECT_THAT(StageEdges(graph, StrategyKind::kGraph, stages), ElementsAre(Edge(0, 2), Edge(1, 2)));
  // Sorted, and the edge from 1 to 2, which has data as well, once.
  EXPECT_THAT(StageEdges(graph, StrategyKind::kSequential, stages),
              ElementsAre(Edge(0, 1), Edge(0, 2), Edge(1, 2)));
}

TEST(StageEdgesTest, OneStageHasNone) {
  const Graph graph = testing::LinearGraph({{}});
  std::vector<Stage> stages(1);
  stages[0].nodes = {NodeId(0), NodeId(1)};
  EXPECT_THAT(StageEdges(graph, StrategyKind::kSequential, stages), ElementsAre());
}

}  // namespace
}  // namespace stagewright
