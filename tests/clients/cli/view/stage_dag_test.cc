#include "clients/cli/view/stage_dag.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/clients/cli/view/branched_plan.h"

namespace stagewright::cli {
namespace {

using ::testing::ElementsAre;

TEST(Successors, AreThoseOfTheEdges) {
  EXPECT_THAT(Successors(BranchedPlan().best().strategy()),
              ElementsAre(ElementsAre(2), ElementsAre(2), ElementsAre()));
}

TEST(HasBranches, IsFalseOfAChain) {
  v1::Strategy strategy = BranchedPlan().best().strategy();
  EXPECT_TRUE(HasBranches(strategy));
  strategy.mutable_edges(0)->set_to(1);
  EXPECT_FALSE(HasBranches(strategy));
  EXPECT_FALSE(HasBranches(v1::Strategy()));
}

TEST(DagText, HasALineForEachLevel) {
  v1::Strategy strategy = BranchedPlan().best().strategy();
  EXPECT_EQ(DagText(strategy), "  in  [0] -> 2   [1] -> 2\n  out [2]\n");
  strategy.mutable_edges(0)->set_to(1);
  EXPECT_EQ(DagText(strategy), "  in  [0] -> 1\n      [1] -> 2\n  out [2]\n");
}

}  // namespace
}  // namespace stagewright::cli
