#include "planner_service/models/frontier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/support/random.h"

namespace stagewright {
namespace {

using testing::Rng;
using testing::Uniform;

Dag Make(int32_t n, std::vector<Dag::Edge> edges) { return *Dag::Create(n, std::move(edges)); }

TEST(FrontierTest, ChainHasOneClassBetweenItsEnds) {
  const Frontier frontier(Make(4, {{0, 1}, {1, 2}, {2, 3}}), {0, 1, 2, 3});
  ASSERT_EQ(frontier.size(), 4);
  EXPECT_TRUE(frontier.At(0).empty());
  EXPECT_TRUE(frontier.At(4).empty());
  for (int32_t p = 1; p < 4; ++p) {
    ASSERT_EQ(frontier.At(p).size(), 1u);
    EXPECT_EQ(frontier.At(p)[0].first_successor, p);
    EXPECT_EQ(frontier.At(p)[0].last_member, p - 1);
    EXPECT_EQ(frontier.At(p)[0].parent, -1);
  }
  EXPECT_EQ(frontier.width(), 1);
}

TEST(FrontierTest, ParallelBranchesAddOneClassForAllFinishedOnes) {
  // Branches 0-1, 2-3, 4-5 join in 6.
  const Frontier frontier(Make(7, {{0, 1}, {2, 3}, {4, 5}, {1, 6}, {3, 6}, {5, 6}}),
                          {0, 1, 2, 3, 4, 5, 6});
  EXPECT_EQ(frontier.At(6).size(), 1u);  // The three exits see the same thing.
  EXPECT_EQ(frontier.At(6)[0].last_member, 5);
  ASSERT_EQ(frontier.At(5).size(), 2u);  // Exits 1 and 3, and the branch in progress.
  EXPECT_EQ(frontier.width(), 2);
}

// At every position, the classes are exactly the sets of prefix vertices with equal, non-empty
// successors in the suffix, and parents lead to the class of the same members one position on.
TEST(FrontierTest, ClassesMatchTheirDefinitionOnRandomGraphs) {
  Rng random(7);
  for (int round = 0; round < 300; ++round) {
    const auto n = static_cast<int32_t>(Uniform(random, 1, 14));
    std::vector<Dag::Edge> edges;
    for (int32_t v = 1; v < n; ++v) {
      for (int32_t u = 0; u < v; ++u) {
        if (Uniform(random, 0, 3) == 0) edges.emplace_back(u, v);
      }
    }
    const Dag dag = Make(n, edges);
    const std::vector<int32_t>& order = dag.order();
    std::vector<int32_t> position(n);
    for (int32_t p = 0; p < n; ++p) position[order[p]] = p;
    const Frontier frontier(dag, order);

    std::map<int32_t, int32_t> before;  // Position of a member -> its class at p + 1.
    for (int32_t p = n; p >= 0; --p) {
      std::map<std::set<int32_t>, std::set<int32_t>> groups;
      for (int32_t q = 0; q < p; ++q) {
        std::set<int32_t> seen;
        for (int32_t w : dag.Successors(order[q])) {
          if (position[w] >= p) seen.insert(position[w]);
        }
        if (!seen.empty()) groups[seen].insert(q);
      }
      ASSERT_EQ(frontier.At(p).size(), groups.size());
      std::map<int32_t, int32_t> now;
      std::set<size_t> matched;
      for (const auto& [seen, members] : groups) {
        for (size_t c = 0; c < frontier.At(p).size(); ++c) {
          if (frontier.At(p)[c].last_member != *members.rbegin()) continue;
          EXPECT_TRUE(matched.insert(c).second);
          EXPECT_EQ(frontier.At(p)[c].first_successor, *seen.begin());
          for (int32_t q : members) {
            now[q] = static_cast<int32_t>(c);
            EXPECT_EQ(frontier.At(p)[c].parent, before.count(q) ? before[q] : -1);
          }
        }
      }
      ASSERT_EQ(matched.size(), groups.size());
      before = now;
    }
  }
}

}  // namespace
}  // namespace stagewright
