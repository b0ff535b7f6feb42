// A thousand random graphs on random clusters, planned with graphpipe and now and then with the
// default planner: no answer breaks a condition, deadlocks, needs more memory than there is, or is
// faster than is possible.
#include <gtest/gtest.h>

#include "common/strategy/check_strategy.h"
#include "common/validation/validate.h"
#include "planner_service/front_door/front_door.h"
#include "planner_service/front_door/planner_table.h"
#include "tests/support/clusters.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright {
namespace {

using testing::Rng;
using testing::Uniform;

void ExpectSound(const Graph& graph, const Cluster& cluster, const PlanResponse& response) {
  const JudgedPlan& best = *response.best;
  const absl::Status conditions = CheckStrategy(graph, cluster, best.plan.strategy);
  EXPECT_TRUE(conditions.ok()) << conditions;
  std::vector<Bytes> budgets;
  for (const Device& device : cluster.devices()) budgets.push_back(device.memory);
  const absl::Status program = Validate(best.plan.program, budgets);
  EXPECT_TRUE(program.ok()) << program;
  for (const DeviceUse& device : best.evaluation.devices) {
    EXPECT_LE(device.peak_memory, cluster.device(device.device).memory);
  }
  EXPECT_GE(best.evaluation.iteration_time, response.lower_bound);
}

TEST(RandomPlansTest, ThousandGraphs) {
  Rng random(1000);
  int planned = 0;
  int pipelines = 0;
  for (int i = 0; i < 1000; ++i) {
    SCOPED_TRACE(i);
    const auto size = static_cast<int32_t>(Uniform(random, 1, 40));
    const Graph graph = Uniform(random, 0, 1) == 0 ? testing::RandomProfile(random, size)
                                                   : testing::RandomNetwork(random, size);
    const Cluster cluster = testing::RandomCluster(random, 8);
    PlanRequest request;
    request.planner = i % 25 == 0 ? kDefaultPlanner : "graphpipe";  // The first takes a second.
    request.graph = &graph;
    request.cluster = &cluster;
    request.mini_batch = Uniform(random, 1, 32);
    request.optimizer = static_cast<Optimizer>(Uniform(random, 0, 2));
    request.options.allow_replicas = Uniform(random, 0, 3) > 0;
    request.options.per_stage_micro_batch = Uniform(random, 0, 3) == 0;
    request.options.max_k = static_cast<int32_t>(Uniform(random, 1, 2));
    SearchContext context;
    const auto response = SolvePlan(request, context);
    ASSERT_TRUE(response.ok()) << response.status();
    if (!response->best) {
      // Proven, or only not found: both say why.
      EXPECT_TRUE(response->termination == Termination::kInfeasible ||
                  response->termination == Termination::kLimit);
      EXPECT_FALSE(response->reason.empty());
      continue;
    }
    ++planned;
    if (response->best->plan.strategy.stages.size() > 1) ++pipelines;
    const auto& split = response->best->split_graphs;
    ExpectSound(split == nullptr ? graph : split->graph, cluster, *response);
  }
  EXPECT_GT(planned, 700);
  EXPECT_GT(pipelines, 200);
}

}  // namespace
}  // namespace stagewright
