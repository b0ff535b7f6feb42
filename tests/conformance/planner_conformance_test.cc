// What every planner owes its caller. A planner joins by its line in the table of planners.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <chrono>
#include <string>
#include <thread>

#include "planner_service/planner/front_door.h"
#include "planner_service/planners/registry.h"
#include "tests/support/planning_cases.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using ::testing::HasSubstr;
using testing::ProfiledChain;
using testing::ProfiledGraph;
using testing::Random;
using testing::Work;
using Clock = SearchContext::Clock;

// Above the 10 ms that planners promise, for machines that are busy.
constexpr std::chrono::milliseconds kPatience(1500);

class PlannerConformanceTest : public ::testing::TestWithParam<RegisteredPlanner> {
 protected:
  PlanRequest Request(const Graph& graph, const Cluster& cluster, int64_t mini_batch) const {
    PlanRequest request;
    request.graph = &graph;
    request.cluster = &cluster;
    request.planner = GetParam().name;
    request.mini_batch = mini_batch;
    return request;
  }

  // The front door turns whatever the evaluator rejects into an error.
  static PlanResponse Solve(const PlanRequest& request) {
    SearchContext context;
    auto response = SolvePlan(request, context);
    EXPECT_TRUE(response.ok()) << response.status();
    if (!response.ok()) return {};
    if (response->best) {
      EXPECT_GE(response->best->evaluation.iteration_time, response->lower_bound);
    } else {
      EXPECT_FALSE(response->reason.empty());
    }
    return *std::move(response);
  }

  // A plan is expected: there is memory enough for any.
  PlanResponse MustPlan(const Graph& graph, const Cluster& cluster, int64_t mini_batch) const {
    PlanResponse response = Solve(Request(graph, cluster, mini_batch));
    EXPECT_TRUE(response.best) << response.reason;
    return response;
  }
};

TEST_P(PlannerConformanceTest, HasItsRegisteredName) {
  const auto planner = GetParam().make();
  EXPECT_EQ(planner->name(), GetParam().name);
  EXPECT_THAT(planner->description(), Not(HasSubstr("\n")));
}

TEST_P(PlannerConformanceTest, EqualProblemsHaveEqualAnswers) {
  Random random(41);
  for (int i = 0; i < 10; ++i) {
    const Graph graph = testing::RandomNetwork(random, 16);
    const Cluster cluster = testing::RandomCluster(random, 8);
    const PlanResponse first = Solve(Request(graph, cluster, 16));
    const PlanResponse second = Solve(Request(graph, cluster, 16));
    EXPECT_EQ(first.termination, second.termination);
    EXPECT_EQ(first.reason, second.reason);
    EXPECT_EQ(first.states, second.states);
    EXPECT_EQ(first.candidates, second.candidates);
    ASSERT_EQ(first.best.has_value(), second.best.has_value());
    if (!first.best) continue;
    EXPECT_EQ(first.best->plan.fingerprint, second.best->plan.fingerprint);
  }
}

TEST_P(PlannerConformanceTest, AnExpiredDeadlineEndsTheSearchAtOnce) {
  Random random(42);
  const Graph graph = testing::RandomProfile(random, 300);
  const Cluster cluster = FlatCluster(16);
  SearchContext context(Clock::now() - std::chrono::seconds(1));
  const auto start = Clock::now();
  const auto response = SolvePlan(Request(graph, cluster, 64), context);
  EXPECT_LT(Clock::now() - start, kPatience);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->termination, Termination::kLimit);
  EXPECT_FALSE(response->reason.empty());
}

TEST_P(PlannerConformanceTest, CancellationEndsTheSearchSoon) {
  Random random(43);
  const Graph graph = testing::RandomProfile(random, 600);
  const Cluster cluster = FlatCluster(32);
  SearchContext context;
  Clock::time_point cancelled;
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    cancelled = Clock::now();
    context.Cancel();
  });
  const auto response = SolvePlan(Request(graph, cluster, 256), context);
  canceller.join();
  EXPECT_LT(Clock::now() - cancelled, kPatience);
  ASSERT_TRUE(response.ok()) << response.status();
}

TEST_P(PlannerConformanceTest, ADeadlineInsideTheSearchIsHonoured) {
  Random random(44);
  const Graph graph = testing::RandomProfile(random, 600);
  const Cluster cluster = FlatCluster(32);
  const auto deadline = Clock::now() + std::chrono::milliseconds(100);
  SearchContext context(deadline);
  const auto response = SolvePlan(Request(graph, cluster, 256), context);
  EXPECT_LT(Clock::now() - deadline, kPatience);
  ASSERT_TRUE(response.ok()) << response.status();
}

TEST_P(PlannerConformanceTest, OneOperator) {
  const Graph graph = ProfiledChain(1, {1000, 2000, kKiB, kKiB, {}});
  const PlanResponse response = MustPlan(graph, FlatCluster(4), 8);
  EXPECT_EQ(response.best->plan.strategy.stages.size(), 1u);
}

TEST_P(PlannerConformanceTest, OneDeviceAndOneSample) {
  const Graph graph = ProfiledChain(5, {1000, 2000, kKiB, kKiB, {}});
  for (int64_t mini_batch : {1, 7}) {
    const PlanResponse response = MustPlan(graph, FlatCluster(1), mini_batch);
    EXPECT_EQ(response.best->evaluation.devices.size(), 1u);
  }
}

TEST_P(PlannerConformanceTest, MoreDevicesThanUseful) {
  MustPlan(ProfiledChain(2, {1000, 2000, kKiB, kKiB, {}}), FlatCluster(48), 3);
}

TEST_P(PlannerConformanceTest, OperatorsWithoutCost) {
  MustPlan(ProfiledChain(12, {}), FlatCluster(4), 8);
  std::vector<Work> some(12);
  for (int32_t v = 1; v < 12; ++v) some[v].after = {v - 1};
  some[5].forward = some[5].backward = kMillisecond;
  MustPlan(ProfiledGraph(some), FlatCluster(4), 8);
}

TEST_P(PlannerConformanceTest, DisconnectedGraphs) {
  // Two chains and a lone operator.
  std::vector<Work> nodes(9, {1000, 2000, kKiB, kKiB, {}});
  for (int32_t v : {1, 2, 3}) nodes[v].after = {v - 1};
  for (int32_t v : {5, 6, 7}) nodes[v].after = {v - 1};
  MustPlan(ProfiledGraph(nodes), FlatCluster(4), 16);
}

TEST_P(PlannerConformanceTest, HugeWeightsAreInfeasibleWithAReason) {
  const Graph graph = ProfiledChain(4, {1000, 2000, kKiB, 3 * kGiB, {}});
  const Cluster cluster = FlatCluster(4, 8 * kGiB);
  PlanRequest request = Request(graph, cluster, 8);
  // 48 GiB for parameters, gradients and Adam: more than four devices of 8 GiB have.
  const PlanResponse total = Solve(request);
  EXPECT_EQ(total.termination, Termination::kInfeasible);
  EXPECT_THAT(total.reason, AllOf(HasSubstr("too much"), HasSubstr("GiB")));
  // 24 GiB for plain SGD fit on four devices but not on one: the planner itself must see to it.
  request.optimizer = Optimizer::kSgd;
  const PlanResponse tight = Solve(request);
  if (tight.best) {
    EXPECT_EQ(tight.best->plan.strategy.stages.size(), 4u);
  } else {
    EXPECT_EQ(tight.termination, Termination::kInfeasible);
  }
}

TEST_P(PlannerConformanceTest, OptionsAreKeptOrInfeasible) {
  const Graph graph = ProfiledChain(6, {1000, 2000, kKiB, kKiB, {}});
  const Cluster cluster = FlatCluster(4);
  std::vector<PlanOptions> cases(6);
  cases[0].micro_batch = 2;
  cases[1].num_stages = 3;
  cases[2].max_stages = 2;
  cases[3].allow_replicas = false;
  cases[4].max_k = 2;
  cases[5].per_stage_micro_batch = true;
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    PlanRequest request = Request(graph, cluster, 12);
    request.options = cases[i];
    const PlanResponse response = Solve(request);  // The front door holds the answer to it.
    EXPECT_EQ(response.best.has_value(), response.termination != Termination::kInfeasible);
  }
}

// Four branches of 499 nodes that join, and an end.
Graph LongBranches() {
  std::vector<Work> nodes;
  Work join = {1000, 2000, kKiB, kKiB, {}};
  for (int32_t v = 0; v < 4 * 499; ++v) {
    nodes.push_back({1000 * (1 + v % 7), 2000 * (1 + v % 5), kKiB, kKiB, {}});
    if (v % 499 > 0) nodes.back().after = {v - 1};
    if (v % 499 == 498) join.after.push_back(v);
  }
  nodes.push_back(join);
  return ProfiledGraph(nodes);
}

TEST_P(PlannerConformanceTest, TwoThousandNodes) {
  const Graph graphs[] = {ProfiledChain(2000, {1000, 2000, kKiB, kKiB, {}}), LongBranches()};
  const Cluster cluster = FlatCluster(8, 64 * kGiB, 0, 1e11);
  for (const Graph& graph : graphs) {
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    SearchContext context(deadline);
    const auto response = SolvePlan(Request(graph, cluster, 64), context);
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_LT(Clock::now() - deadline, kPatience);
    EXPECT_TRUE(response->best) << response->reason;
  }
}

// Wide and far from series-parallel: an answer may take longer than anybody waits, but the deadline
// holds.
TEST_P(PlannerConformanceTest, TwoThousandNodesInATangle) {
  Random random(45);
  const Graph graphs[] = {testing::RandomNetwork(random, 2000),
                          testing::RandomProfile(random, 2000)};
  const Cluster cluster = FlatCluster(8, 1024 * kGiB, 0, 1e11);
  for (const Graph& graph : graphs) {
    const auto deadline = Clock::now() + std::chrono::seconds(2);
    SearchContext context(deadline);
    const auto response = SolvePlan(Request(graph, cluster, 64), context);
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_LT(Clock::now() - deadline, kPatience);
    EXPECT_TRUE(response->best) << response->reason;
  }
}

INSTANTIATE_TEST_SUITE_P(All, PlannerConformanceTest, ::testing::ValuesIn(RegisteredPlanners()),
                         [](const ::testing::TestParamInfo<RegisteredPlanner>& entry) {
                           std::string name = entry.param.name;
                           for (char& c : name) {
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace stagewright
