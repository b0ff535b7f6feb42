#include "planner_service/planners/drl_pp/drl_pp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "planner_service/front_door/front_door.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using testing::ProfiledChain;
using testing::Work;

class DrlPpTest : public ::testing::Test {
 protected:
  absl::StatusOr<PlanResponse> Plan(const DrlPpConfig& config, const PlanOptions& options = {}) {
    SearchContext context;
    return Plan(config, options, context);
  }
  absl::StatusOr<PlanResponse> Plan(const DrlPpConfig& config, const PlanOptions& options,
                                    SearchContext& context) {
    PlanRequest request;
    request.graph = &graph_;
    request.cluster = &cluster_;
    request.mini_batch = 8;
    request.options = options;
    return SolvePlanWith(*MakeDrlPpPlanner(config), request, context);
  }

  // Equal layers with small activations and large weights: replicas would sum gradients for long.
  Graph graph_ = ProfiledChain(8, Work{1'000'000, 2'000'000, 1000, 400'000'000, {}});
  Cluster cluster_ = FlatCluster(4, 64 * kGiB, 1000, 1e10);
};

TEST_F(DrlPpTest, LearnsThatAPipelineBeatsReplicasWhereWeightsAreLarge) {
  const auto response = Plan({.steps = 60});
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_TRUE(response->best.has_value());
  const Strategy& strategy = response->best->plan.strategy;
  EXPECT_EQ(strategy.stages.size(), 4u);
  // Eight micro-batches through four stages of 6 ms: 11 turns.
  EXPECT_LT(response->best->evaluation.iteration_time, 75'000'000);
}

TEST_F(DrlPpTest, IsDeterministicForASeed) {
  PlanOptions options;
  options.seed = 3;
  const auto first = Plan({.steps = 12}, options);
  const auto second = Plan({.steps = 12}, options);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->best->plan.fingerprint, second->best->plan.fingerprint);
  EXPECT_EQ(first->candidates, second->candidates);
}

TEST_F(DrlPpTest, KeepsTheNumberOfStagesAndRefusesReplicasWhereAsked) {
  PlanOptions options;
  options.num_stages = 3;
  options.allow_replicas = false;
  const auto response = Plan({.steps = 30}, options);
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_TRUE(response->best.has_value()) << response->reason;
  EXPECT_EQ(response->best->plan.strategy.stages.size(), 3u);
  for (const Stage& stage : response->best->plan.strategy.stages) {
    EXPECT_EQ(stage.devices.size(), 1u);
  }
}

TEST_F(DrlPpTest, ASavedPolicyKnowsWhatItLearned) {
  const std::string path = ::testing::TempDir() + "drl_pp_policy.pt";
  ASSERT_TRUE(Plan({.steps = 80, .save_policy = path}).ok());
  // The twelve draws of one step: what was learned shows in them.
  const auto learned = Plan({.steps = 1, .load_policy = path});
  const auto fresh = Plan({.steps = 1});
  std::remove(path.c_str());
  ASSERT_TRUE(learned.ok()) << learned.status();
  ASSERT_TRUE(fresh.ok());
  EXPECT_LT(learned->best->evaluation.iteration_time, fresh->best->evaluation.iteration_time);
}

TEST_F(DrlPpTest, NamesAPolicyFileThatIsNone) {
  const std::string path = ::testing::TempDir() + "not_a_policy.pt";
  std::ofstream(path) << "hello";
  const auto response = Plan({.steps = 1, .load_policy = path});
  std::remove(path.c_str());
  ASSERT_FALSE(response.ok());
  EXPECT_NE(response.status().message().find(path), std::string::npos) << response.status();
}

// The search pays itself by whatever measures strategies, for instance steps on workers.
TEST_F(DrlPpTest, FollowsTheMeasurementsItIsGiven) {
  int64_t asked = 0;
  SearchContext context;
  context.measure = [&](const Problem&) -> MeasureStrategy {
    return [&](const Strategy& strategy) -> absl::StatusOr<double> {
      ++asked;
      return strategy.stages.size() == 2 ? 1.0 : 2.0;
    };
  };
  const auto response = Plan({.steps = 40}, {}, context);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->best->plan.strategy.stages.size(), 2u);
  EXPECT_EQ(response->candidates, asked);
}

// Three parts of twenty uneven operators, paid by the heaviest: a few cuts of 171 are best, and
// what tells them from others gets smaller the nearer the policy is.
TEST_F(DrlPpTest, FindsTheBestCutsAndKeepsThem) {
  constexpr int kOperators = 20, kParts = 3;
  const auto weight = [](int op) { return 1 + 7 * op % 5; };
  const auto weigh = [&](int begin, int end) {
    int sum = 0;
    for (int op = begin; op < end; ++op) sum += weight(op);
    return sum;
  };
  int least = weigh(0, kOperators);
  for (int a = 1; a < kOperators; ++a) {
    for (int b = a + 1; b < kOperators; ++b)
      least = std::min(least, std::max({weigh(0, a), weigh(a, b), weigh(b, kOperators)}));
  }
  const auto heaviest = [&](const Strategy& strategy) {
    int most = 0;
    for (const Stage& stage : strategy.stages) {
      int sum = 0;
      for (NodeId node : stage.nodes) sum += weight(node.value());
      most = std::max(most, sum);
    }
    return most;
  };
  graph_ = ProfiledChain(kOperators, Work{1'000'000, 2'000'000, 1000, 400'000'000, {}});
  cluster_ = FlatCluster(kParts, 64 * kGiB, 1000, 1e10);
  SearchContext context;
  context.measure = [&](const Problem&) -> MeasureStrategy {
    return [&](const Strategy& strategy) -> absl::StatusOr<double> { return heaviest(strategy); };
  };
  PlanOptions options;
  options.allow_replicas = false;
  options.seed = 5;
  const auto response = Plan({.steps = 40}, options, context);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(heaviest(response->best->plan.strategy), least);
}

}  // namespace
}  // namespace stagewright
