#include "planner_service/planners/exact/exact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "planner_service/planner/front_door.h"
#include "tests/support/planning_cases.h"
#include "tests/support/small_problems.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using ::testing::HasSubstr;
using testing::ProfiledChain;

PlanResponse Plan(const Graph& graph, const Cluster& cluster, SearchContext& context) {
  PlanRequest request;
  request.graph = &graph;
  request.cluster = &cluster;
  request.mini_batch = 8;
  return SolvePlanWith(*MakeExactPlanner(), request, context).value();
}

TEST(ExactTest, FindsTheOptimumOfAChain) {
  SearchContext context;
  const PlanResponse response =
      Plan(ProfiledChain(4, {kMillisecond, 2 * kMillisecond, kKiB, 256 * kMiB, {}}), FlatCluster(4),
           context);
  EXPECT_EQ(response.termination, Termination::kOptimal);
  ASSERT_TRUE(response.best);
  EXPECT_EQ(response.best->plan.strategy.stages.size(), 4u);
}

TEST(ExactTest, LargerProblemsAreAnsweredByTheirLimit) {
  SearchContext context;
  const PlanResponse operators = Plan(
      ProfiledChain(17, {kMillisecond, kMillisecond, kKiB, kKiB, {}}), FlatCluster(4), context);
  EXPECT_EQ(operators.termination, Termination::kLimit);
  EXPECT_THAT(operators.reason, AllOf(HasSubstr("16 operators"), HasSubstr("17 operators")));
  EXPECT_TRUE(operators.best);
  const PlanResponse devices =
      Plan(ProfiledChain(4, {kMillisecond, kMillisecond, kKiB, kKiB, {}}), FlatCluster(7), context);
  EXPECT_EQ(devices.termination, Termination::kLimit);
  EXPECT_THAT(devices.reason, AllOf(HasSubstr("6 devices"), HasSubstr("7 devices")));
}

TEST(ExactTest, ADeadlineLeavesTheBestSoFar) {
  testing::Random random(5);
  const Graph graph = testing::RandomProfile(random, 16);
  const Cluster cluster = FlatCluster(6, 16 * kGiB, 1000, 1e10);
  SearchContext context(SearchContext::Clock::now() + std::chrono::milliseconds(300));
  const PlanResponse response = Plan(graph, cluster, context);
  EXPECT_TRUE(response.best);
  if (response.termination != Termination::kOptimal) {
    EXPECT_EQ(response.termination, Termination::kLimit);
    EXPECT_THAT(response.reason, HasSubstr("deadline"));
  }
}

}  // namespace
}  // namespace stagewright
