#include "planner_service/planners/pipedream/states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright::pipedream {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

States StatesOf(const Dag& dag, int32_t most) {
  const std::vector<double> ones(dag.size(), 1.0);
  return States(dag, ones, ones, most, SearchContext());
}

bool IsDownset(const Dag& dag, const States& states, int32_t state) {
  for (int32_t v = 0; v < dag.size(); ++v) {
    for (const int32_t u : dag.Predecessors(v)) {
      if (states.Has(state, v) && !states.Has(state, u)) return false;
    }
  }
  return true;
}

bool Holds(const States& states, int32_t larger, int32_t smaller, int32_t layers) {
  for (int32_t v = 0; v < layers; ++v) {
    if (states.Has(smaller, v) && !states.Has(larger, v)) return false;
  }
  return true;
}

TEST(States, OfAChainAreItsPrefixes) {
  const Dag chain = Dag::Create(3, {{0, 1}, {1, 2}}).value();
  const States states = StatesOf(chain, 100);
  ASSERT_EQ(states.size(), 4);
  EXPECT_TRUE(states.complete());
  EXPECT_THAT(states.Between(1, 3), ElementsAre(1, 2));
  EXPECT_THAT(states.Before(3), ElementsAre(2, 1)) << "all but the empty one, largest first";
  EXPECT_THAT(states.Before(1), IsEmpty());
  EXPECT_THAT(states.Sum({1, 10, 100}), ElementsAre(0, 1, 11, 111));
  // The last layer has no successor.
  EXPECT_THAT(states.Boundary(chain, {1, 10, 100}), ElementsAre(0, 1, 10, 0));
}

TEST(States, AreAllDownsetsWhereTheyAreFew) {
  // Two branches of two layers each that meet: (2 + 1) * (2 + 1) downsets, and the whole.
  const Dag dag = Dag::Create(5, {{0, 1}, {2, 3}, {1, 4}, {3, 4}}).value();
  EXPECT_EQ(StatesOf(dag, 100).size(), 10);
  EXPECT_TRUE(StatesOf(dag, 100).complete());
  EXPECT_FALSE(StatesOf(dag, 9).complete());
}

TEST(States, AreOrderedDownsetsFromNothingToAll) {
  testing::Rng rng(7);
  for (int i = 0; i < 40; ++i) {
    const auto layers = static_cast<int32_t>(testing::Uniform(rng, 1, 12));
    const Dag dag = testing::RandomDag(rng, layers, 0.3);
    for (const int32_t most : {16, 100'000}) {
      const States states = StatesOf(dag, most);
      EXPECT_THAT(states.Between(0, states.size() - 1).size(), static_cast<size_t>(layers));
      for (int32_t s = 0; s < states.size(); ++s) {
        EXPECT_TRUE(IsDownset(dag, states, s));
        for (int32_t later = s + 1; later < states.size(); ++later)
          EXPECT_FALSE(Holds(states, s, later, layers)) << "a larger state has a larger index";
        std::vector<int32_t> inside;
        for (int32_t t = s - 1; t > 0; --t) {
          if (Holds(states, s, t, layers)) inside.push_back(t);
        }
        EXPECT_EQ(states.Before(s), inside);
      }
    }
  }
}

}  // namespace
}  // namespace stagewright::pipedream
