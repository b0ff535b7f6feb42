#include "planner_service/planners/exact/exact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "planner_service/front_door/front_door.h"
#include "planner_service/front_door/planner_table.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
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
  return SolvePlanWith(*MakePlanner("exact").value(), request, context).value();
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

TEST(ExactTest, OutsideItsLimitsNothingIsInfeasible) {
  // Too large for one device; graphpipe, from which it would start, finds nothing either.
  SearchContext context;
  const PlanResponse response =
      Plan(ProfiledChain(17, {kMillisecond, kMillisecond, kMiB, 100 * kMiB, {}}),
           FlatCluster(7, 980 * kMiB), context);
  EXPECT_FALSE(response.best);
  EXPECT_EQ(response.termination, Termination::kLimit);
  EXPECT_THAT(response.reason, HasSubstr("17 operators"));
}

TEST(ExactTest, WhatDoesNotFitNamesTheScope) {
  std::vector<testing::Work> nodes(3, {kMillisecond, kMillisecond, kKiB, 9 * kGiB / 20, {}});
  nodes[1] = {kMillisecond, kMillisecond, kKiB, 12 * kGiB / 20, {0}};
  nodes[2].after = {1};
  SearchContext context;
  const PlanResponse response =
      Plan(testing::ProfiledGraph(nodes), FlatCluster(2, 4 * kGiB), context);
  EXPECT_EQ(response.termination, Termination::kLimit);
  EXPECT_THAT(response.reason, HasSubstr("among strategies of one stage per device"));
}

TEST(ExactTest, SolvesAllSmallProblems) {
  int feasible = 0;
  for (int32_t i = 0; i < testing::kSmallProblems; ++i) {
    const auto small = testing::MakeSmallProblem(i);
    SCOPED_TRACE(small->name);
    SearchContext context;
    const Outcome outcome =
        MakePlanner("exact").value()->Solve(small->problem(), {}, context).value();
    // A search that ended.
    EXPECT_TRUE(outcome.termination == Termination::kOptimal ||
                outcome.reason.find("found no plan") != std::string::npos ||
                outcome.termination == Termination::kInfeasible)
        << outcome.reason;
    feasible += outcome.strategy ? 1 : 0;
  }
  EXPECT_GT(feasible, testing::kSmallProblems * 9 / 10);
}

// Four branches of three operators, a join and an end: many partitions of nearly equal time.
TEST(ExactTest, FourteenOperatorsOnFourDevices) {
  std::vector<testing::Work> nodes;
  testing::Work join = {kMillisecond, 2 * kMillisecond, kMiB, 4 * kMiB, {}};
  for (int32_t v = 0; v < 12; ++v) {
    nodes.push_back({(2 + v % 5) * kMillisecond, (4 + v % 7) * kMillisecond, kMiB, 16 * kMiB, {}});
    if (v % 3 > 0) nodes.back().after = {v - 1};
    if (v % 3 == 2) join.after.push_back(v);
  }
  nodes.push_back(join);
  join.after = {12};
  nodes.push_back(join);
  SearchContext context;
  const PlanResponse response =
      Plan(testing::ProfiledGraph(nodes), FlatCluster(4, 16 * kGiB, 20'000, 12.5e9), context);
  EXPECT_EQ(response.termination, Termination::kOptimal) << response.reason;
  RecordProperty("states", static_cast<int>(response.states));
  RecordProperty("candidates", static_cast<int>(response.candidates));
}

TEST(ExactTest, ADeadlineLeavesTheBestSoFar) {
  testing::Rng random(5);
  const Graph graph = testing::RandomProfile(random, 16);
  const Cluster cluster = FlatCluster(6, 16 * kGiB, 1000, 1e10);
  PlanResponse response;
  for (int ms = 300; ms <= 9600 && !response.best; ms *= 2) {  // More where 300 ms are nothing.
    SearchContext context(SearchContext::Clock::now() + std::chrono::milliseconds(ms));
    response = Plan(graph, cluster, context);
  }
  EXPECT_TRUE(response.best);
  if (response.termination != Termination::kOptimal) {
    EXPECT_EQ(response.termination, Termination::kLimit);
    EXPECT_THAT(response.reason, HasSubstr("deadline"));
  }
}

}  // namespace
}  // namespace stagewright
