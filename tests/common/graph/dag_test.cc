#include "common/graph/dag.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using testing::RandomDag;
using testing::Rng;
using testing::Uniform;

TEST(Dag, SortsAndMergesNeighbours) {
  auto dag = Dag::Create(4, {{2, 0}, {0, 3}, {0, 1}, {0, 3}, {2, 1}});
  ASSERT_TRUE(dag.ok());
  EXPECT_THAT(dag->order(), ElementsAre(2, 0, 1, 3));
  EXPECT_THAT(dag->Successors(0), ElementsAre(1, 3));
  EXPECT_THAT(dag->Predecessors(1), ElementsAre(0, 2));
  EXPECT_EQ(dag->Edges().size(), 4u);
  EXPECT_EQ(Depth(*dag), 3);
}

TEST(Dag, EmptyIsFine) {
  auto dag = Dag::Create(0, {});
  ASSERT_TRUE(dag.ok());
  EXPECT_EQ(dag->size(), 0);
  EXPECT_EQ(Depth(*dag), 0);
}

TEST(Dag, RefusesWhatIsNoDag) {
  EXPECT_EQ(Dag::Create(3, {{0, 3}}).status().message(), "edge 0 -> 3 is outside the 3 vertices");
  EXPECT_EQ(Dag::Create(3, {{-1, 0}}).status().message(), "edge -1 -> 0 is outside the 3 vertices");
  EXPECT_EQ(Dag::Create(2, {{1, 1}}).status().message(), "cycle through vertices 1 -> 1");
  const auto cyclic = Dag::Create(5, {{0, 1}, {1, 2}, {2, 3}, {3, 1}, {3, 4}});
  EXPECT_EQ(cyclic.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cyclic.status().message(), "cycle through vertices 1 -> 2 -> 3 -> 1");
}

// Reachability by repeated relaxation, the plain way.
std::vector<std::vector<bool>> Closure(const Dag& dag) {
  std::vector<std::vector<bool>> reach(dag.size(), std::vector<bool>(dag.size(), false));
  for (const auto& [u, v] : dag.Edges()) reach[u][v] = true;
  for (int32_t k = 0; k < dag.size(); ++k) {
    for (int32_t i = 0; i < dag.size(); ++i) {
      for (int32_t j = 0; j < dag.size(); ++j) {
        if (reach[i][k] && reach[k][j]) reach[i][j] = true;
      }
    }
  }
  return reach;
}

TEST(Dag, ReachabilityAndReductionOfRandomDags) {
  Rng rng(3);
  for (int i = 0; i < 200; ++i) {
    const Dag dag = RandomDag(rng, static_cast<int32_t>(Uniform(rng, 1, 80)), 0.1);
    const Reachability reach(dag);
    const Dag reduced = TransitiveReduction(dag, reach);
    const auto closure = Closure(dag);
    ASSERT_EQ(closure, Closure(reduced));
    for (int32_t u = 0; u < dag.size(); ++u) {
      for (int32_t v = 0; v < dag.size(); ++v) ASSERT_EQ(reach.Reaches(u, v), closure[u][v]);
    }
    for (const auto& [u, v] : reduced.Edges()) {
      for (int32_t w = 0; w < dag.size(); ++w) ASSERT_FALSE(closure[u][w] && closure[w][v]);
    }
  }
}

TEST(Dag, ConvexityOfRandomSets) {
  Rng rng(4);
  for (int i = 0; i < 500; ++i) {
    const Dag dag = RandomDag(rng, static_cast<int32_t>(Uniform(rng, 1, 12)), 0.3);
    const auto closure = Closure(dag);
    std::vector<bool> member(dag.size());
    for (int32_t v = 0; v < dag.size(); ++v) member[v] = Uniform(rng, 0, 1) == 1;
    bool convex = true;
    for (int32_t u = 0; u < dag.size(); ++u) {
      for (int32_t w = 0; w < dag.size(); ++w) {
        for (int32_t v = 0; v < dag.size(); ++v) {
          convex =
              convex && !(member[u] && member[v] && !member[w] && closure[u][w] && closure[w][v]);
        }
      }
    }
    ASSERT_EQ(IsConvex(dag, member), convex);
  }
}

TEST(Dag, QuotientRefusesCyclesAndLeavesOut) {
  auto dag = Dag::Create(4, {{0, 1}, {1, 2}, {2, 3}});
  ASSERT_TRUE(dag.ok());
  EXPECT_EQ(Quotient(*dag, {0, 1, 0, 1}, 2).status().message(),
            "cycle through vertices 0 -> 1 -> 0");
  const auto quotient = Quotient(*dag, {1, 1, -1, 0}, 2);
  ASSERT_TRUE(quotient.ok());
  EXPECT_TRUE(quotient->Edges().empty());
}

}  // namespace
}  // namespace stagewright
