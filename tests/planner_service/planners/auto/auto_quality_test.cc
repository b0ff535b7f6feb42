// How good the default planner's answers are on our own profiles, and in how much time.
#include <gtest/gtest.h>

#include "common/cost/parameters.h"
#include "common/topology/uniform.h"
#include "planner_service/front_door/front_door.h"
#include "planner_service/front_door/planner_table.h"
#include "tests/support/shared_graphs.h"

namespace stagewright {
namespace {

struct Target {
  const char* graph;
  int32_t devices;
  int64_t micro_batches;
  double must_ms;  // 0: compared with the other planners instead.
};

std::ostream& operator<<(std::ostream& out, const Target& target) {
  return out << target.graph << " on " << target.devices;
}

class AutoQualityTest : public ::testing::TestWithParam<Target> {};

TEST_P(AutoQualityTest, MeetsItsTarget) {
  const Target& target = GetParam();
  const std::string name = std::string("synthetic/") + target.graph + ".graph.txt";
  const Graph graph = ImportedGraph(ProfileFormat::kPipeDream, name);
  const Cluster cluster = *UniformPreset("uniform:" + std::to_string(target.devices));
  PlanRequest request;
  request.graph = &graph;
  request.cluster = &cluster;
  request.mini_batch = target.micro_batches;
  request.optimizer = Optimizer::kSgd;
  const auto solve = [&](const char* planner) {
    request.planner = planner;
    SearchContext context;
    return SolvePlan(request, context);
  };
  const auto found = solve(kDefaultPlanner);
  ASSERT_TRUE(found.ok() && found->best) << found.status();
  const double ms = ToSeconds(found->best->evaluation.iteration_time) * 1e3;
  RecordProperty("ms", std::to_string(ms));
  RecordProperty("bound_ms", std::to_string(ToSeconds(found->lower_bound) * 1e3));
  if (target.must_ms > 0) {
    EXPECT_LE(ms, target.must_ms);
    return;
  }
  if (ms <= 1.02 * ToSeconds(found->lower_bound) * 1e3) return;
  for (const RegisteredPlanner& entry : RegisteredPlanners()) {
    const std::string planner = entry.name;
    if (planner == kDefaultPlanner || planner == "exact" || planner == "drl_pp") continue;
    const auto other = solve(entry.name);
    ASSERT_TRUE(other.ok()) << other.status();
    if (!other->best) continue;
    EXPECT_LE(1.05 * ms, ToSeconds(other->best->evaluation.iteration_time) * 1e3) << planner;
  }
}

INSTANTIATE_TEST_SUITE_P(Profiles, AutoQualityTest,
                         ::testing::Values(Target{"mmt4_layer", 4, 4, 226},
                                           Target{"mmt4_layer", 8, 8, 236},
                                           Target{"mmt4_layer", 8, 16, 460},
                                           Target{"candle7", 4, 4, 0}, Target{"candle7", 8, 8, 88},
                                           Target{"candle7", 16, 16, 105},
                                           Target{"dlrm7x7", 4, 4, 0}, Target{"dlrm7x7", 8, 8, 13},
                                           Target{"dlrm7x7", 16, 16, 16}));

}  // namespace
}  // namespace stagewright
