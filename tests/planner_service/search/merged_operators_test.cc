#include "planner_service/search/merged_operators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "common/cost/analytic.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random_graphs.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using testing::ProfiledChain;
using testing::RandomProfile;
using testing::Rng;

std::vector<double> Equal(const OperatorGraph& operators) {
  return std::vector<double>(operators.size(), 1.0);
}

TEST(MergeChains, PacksAChainEvenly) {
  const Graph graph = ProfiledChain(12, {kMillisecond, kMillisecond, kKiB, kKiB, {}});
  const OperatorGraph operators = OneOperatorPerNode(graph).value();
  const OperatorGraph merged = MergeChains(graph, operators, Equal(operators), 4);
  ASSERT_EQ(merged.size(), 4);
  for (const Operator& op : merged.operators()) EXPECT_EQ(op.nodes.size(), 3u);
  EXPECT_THAT(merged.op(OperatorId(1)).nodes, ElementsAre(NodeId(3), NodeId(4), NodeId(5)));
  EXPECT_EQ(merged.op(OperatorId(1)).name, operators.op(OperatorId(3)).name);
  EXPECT_EQ(merged.owner(NodeId(11)), OperatorId(3));
}

TEST(MergeChains, HeavyOperatorsStandAlone) {
  const Graph graph = ProfiledChain(6, {kMillisecond, kMillisecond, kKiB, kKiB, {}});
  const OperatorGraph operators = OneOperatorPerNode(graph).value();
  const OperatorGraph merged = MergeChains(graph, operators, {1, 1, 9, 1, 1, 1}, 3);
  ASSERT_EQ(merged.size(), 3);
  EXPECT_THAT(merged.op(OperatorId(1)).nodes, ElementsAre(NodeId(2)));
}

TEST(MergeChains, FewOperatorsStayAsTheyAre) {
  const Graph graph = ProfiledChain(5, {kMillisecond, kMillisecond, kKiB, kKiB, {}});
  const OperatorGraph operators = OneOperatorPerNode(graph).value();
  EXPECT_EQ(MergeChains(graph, operators, Equal(operators), 5).size(), 5);
}

// Unions are chains: whoever reached or was reached by one of its operators from outside reaches
// or is reached by all of them, so no branch waits for another that it did not wait for.
TEST(MergeChains, WhoReachesWhomStaysOnRandomGraphs) {
  Rng rng(11);
  int32_t fewer = 0;
  for (int32_t i = 0; i < 300; ++i) {
    const Graph graph = RandomProfile(rng, 4 + i % 40);
    const OperatorGraph operators = OneOperatorPerNode(graph).value();
    const int32_t most = 1 + i % 7;
    const OperatorGraph merged = MergeChains(graph, operators, Equal(operators), most);
    if (merged.size() < operators.size()) ++fewer;
    const Reachability before(operators.dag());
    const Reachability after(merged.dag());
    size_t nodes = 0;
    for (const Operator& op : merged.operators()) nodes += op.nodes.size();
    ASSERT_EQ(nodes, static_cast<size_t>(graph.size()));
    for (int32_t u = 0; u < graph.size(); ++u) {
      for (int32_t v = 0; v < graph.size(); ++v) {
        const int32_t a = merged.owner(NodeId(u)).value();
        const int32_t b = merged.owner(NodeId(v)).value();
        if (a == b && u != v) {
          EXPECT_TRUE(before.Reaches(u, v) || before.Reaches(v, u)) << "graph " << i;
        } else if (a != b) {
          EXPECT_EQ(before.Reaches(u, v), after.Reaches(a, b)) << "graph " << i;
        }
      }
    }
  }
  EXPECT_GT(fewer, 100);
}

// A chain on devices whose product is what is searched at most, or above it.
struct ManyOperators {
  ManyOperators(int32_t size, int32_t devices)
      : graph(ProfiledChain(size, {kMillisecond, kMillisecond, kKiB, kKiB, {}})),
        operators(OneOperatorPerNode(graph).value()),
        cluster(testing::FlatCluster(devices)),
        costs(MakeAnalyticCostModel(graph)) {}
  Problem problem() const { return {&graph, &operators, &cluster, costs.get(), 4}; }

  Graph graph;
  OperatorGraph operators;
  Cluster cluster;
  std::unique_ptr<CostModel> costs;
};

TEST(FewerOperators, ManyAreUnitedEvenly) {
  const ManyOperators many(8'001, 250);
  const std::optional<OperatorGraph> fewer = FewerOperators(many.problem());
  ASSERT_TRUE(fewer.has_value());
  EXPECT_LE(fewer->size(), kSearchedAtEase / 250);
  EXPECT_GE(3 * fewer->size(), 8'001);
  size_t most = 0;
  for (const Operator& op : fewer->operators()) most = std::max(most, op.nodes.size());
  EXPECT_LE(most, 3u);
}

TEST(FewerOperators, AsManyAsAreSearchedStay) {
  EXPECT_FALSE(FewerOperators(ManyOperators(8'000, 250).problem()).has_value());
}

TEST(FewerOperators, HeavyOnesStandAlone) {
  ManyOperators many(8'001, 250);
  GraphData data = many.graph.data();
  data.nodes[4'000].cost->forward = kSecond;
  many.graph = Graph::Create(std::move(data)).value();
  many.costs = MakeAnalyticCostModel(many.graph);
  const std::optional<OperatorGraph> fewer = FewerOperators(many.problem());
  ASSERT_TRUE(fewer.has_value());
  EXPECT_EQ(fewer->op(fewer->owner(NodeId(4'000))).nodes.size(), 1u);
}

}  // namespace
}  // namespace stagewright
