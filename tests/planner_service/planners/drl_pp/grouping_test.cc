#include "planner_service/planners/drl_pp/grouping.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace stagewright {
namespace {

TEST(GroupOperatorsTest, KeepsBranchesApart) {
  // 0 -> {1 -> 2 -> 3, 4 -> 5 -> 6} -> 7
  const Dag dag = *Dag::Create(8, {{0, 1}, {1, 2}, {2, 3}, {0, 4}, {4, 5}, {5, 6}, {3, 7}, {6, 7}});
  const Grouping grouping = GroupOperators(dag, {5, 1, 1, 1, 1, 1, 1, 5}, 4);
  EXPECT_EQ(grouping.groups, (std::vector<std::vector<int32_t>>{{0}, {1, 2, 3}, {4, 5, 6}, {7}}));
  EXPECT_EQ(grouping.dag.Edges(), (std::vector<Dag::Edge>{{0, 1}, {0, 2}, {1, 3}, {2, 3}}));
}

TEST(GroupOperatorsTest, IsAPartitionWithAnAcyclicQuotientOnRandomGraphs) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    const auto n = static_cast<int32_t>(1 + random() % 40);
    const auto most = static_cast<int32_t>(1 + random() % 12);
    std::vector<Dag::Edge> edges;
    for (int32_t v = 1; v < n; ++v) {
      for (int32_t u = 0; u < v; ++u) {
        if (random() % 100 < 12) edges.push_back({u, v});
      }
    }
    std::vector<double> weight;
    for (int32_t v = 0; v < n; ++v) weight.push_back(static_cast<double>(random() % 10));
    const Dag dag = *Dag::Create(n, edges);
    const Grouping grouping = GroupOperators(dag, weight, most);
    EXPECT_LE(grouping.groups.size(), static_cast<size_t>(most));
    EXPECT_EQ(grouping.groups.size(), static_cast<size_t>(grouping.dag.size()));
    std::vector<int32_t> all;
    for (const auto& group : grouping.groups) {
      EXPECT_FALSE(group.empty());
      all.insert(all.end(), group.begin(), group.end());
    }
    std::sort(all.begin(), all.end());
    std::vector<int32_t> expected(n);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(all, expected);
  }
}

}  // namespace
}  // namespace stagewright
