#include "planner_service/front_door/plan_warnings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using testing::FlatCluster;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MakeStrategy;
using testing::ProfiledGraph;

std::vector<std::string> Warnings(const Graph& graph, const Cluster& cluster,
                                  const Strategy& strategy) {
  return PlanWarnings(graph, OneOperatorPerNode(graph).value(), cluster, strategy);
}

Graph WithBatchNorms() {
  GraphData data = ProfiledGraph({{}, {1, 1, 0, 0, {0}}, {}, {}, {}}).data();
  for (int v : {0, 2, 3, 4}) data.nodes[v].batch_dependent = true;
  return Graph::Create(data).value();
}

TEST(PlanWarningsTest, LayersThatDependOnTheMicroBatch) {
  const Graph graph = WithBatchNorms();
  const Cluster cluster = FlatCluster(1);
  const auto split = MakeStrategy(graph, {{0, 1, 2, 3, 4}}, {{0}}, 16, 4);
  EXPECT_THAT(Warnings(graph, cluster, split),
              ElementsAre(AllOf(HasSubstr("mini-batch of 16"), HasSubstr("as few as 4 samples"),
                                HasSubstr("'n0', 'n2', 'n3' and 1 more"))));
  // All samples at once on one device: nothing to warn of.
  const auto whole = MakeStrategy(graph, {{0, 1, 2, 3, 4}}, {{0}}, 16, 16);
  EXPECT_THAT(Warnings(graph, cluster, whole), IsEmpty());
}

TEST(PlanWarningsTest, ReplicasSplitABatchToo) {
  const Graph graph = WithBatchNorms();
  const auto replicated = MakeStrategy(graph, {{0, 1, 2, 3, 4}}, {{0, 1}}, 16, 16);
  EXPECT_THAT(Warnings(graph, FlatCluster(2), replicated),
              ElementsAre(HasSubstr("as few as 8 samples")));
}

TEST(PlanWarningsTest, IdleDevicesAndConvertedBlocks) {
  // An N: one sink reads the first source, the other reads both.
  const Graph graph =
      ProfiledGraph({{1, 1, 0, 0, {}}, {1, 1, 0, 0, {}}, {1, 1, 0, 0, {0}}, {1, 1, 0, 0, {0, 1}}});
  const auto strategy = MakeStrategy(graph, {{0, 1}, {2, 3}}, {{0}, {2}}, 4, 1);
  EXPECT_THAT(Warnings(graph, FlatCluster(4), strategy),
              ElementsAre(HasSubstr("2 of 4 devices stay idle"),
                          HasSubstr("1 part of the graph is not series-parallel")));
}

}  // namespace
}  // namespace stagewright
