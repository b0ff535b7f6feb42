// Section 4.3: the placements that DRL-PP ends at on four devices, on the published profiles.
#include <gtest/gtest.h>

#include <cstdlib>

#include "common/topology/presets.h"
#include "planner_service/front_door/front_door.h"
#include "planner_service/importers/profile.h"
#include "planner_service/planners/drl_pp/drl_pp.h"
#include "planner_service/planners/drl_pp/reward.h"
#include "tests/support/shared_graphs.h"

namespace stagewright {
namespace {

struct Case {
  const char* profile;
  std::vector<size_t> replicas;  // By stage.
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.profile; }

// A worker of the paper computes one mini-batch of the profile at a time and updates its weights
// after it.
MeasureStrategy OneProfiledBatchAtATime(const Problem& problem) {
  return
      [simulated = SimulatedSeconds(problem)](const Strategy& strategy) -> absl::StatusOr<double> {
        size_t replicas = 1;
        for (const Stage& stage : strategy.stages)
          replicas = std::max(replicas, stage.devices.size());
        if (strategy.stages[0].micro_batch > static_cast<int64_t>(replicas)) {
          return absl::OutOfRangeError("more than one profiled mini-batch at a time");
        }
        return simulated(strategy);
      };
}

class DrlPpPaperTest : public ::testing::TestWithParam<Case> {};

TEST_P(DrlPpPaperTest, EndsAtThePaperSPlacement) {
  STAGEWRIGHT_SHARED_GRAPH_OR_SKIP(path,
                                   "pipedream/" + std::string(GetParam().profile) + ".graph.txt");
  const auto imported = ImportProfileFile(ProfileFormat::kPipeDream, path);
  ASSERT_TRUE(imported.ok()) << imported.status();
  const auto cluster = LoadCluster("uniform:4,bandwidth=1e9");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  PlanRequest request;
  request.graph = &imported->graph;
  request.cluster = &*cluster;
  request.mini_batch = 12;
  request.options.asynchronous = true;
  // Some seeds settle early on another placement; each has fewer steps than the paper's 600.
  std::vector<std::vector<size_t>> found;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    request.options.seed = seed;
    SearchContext context;
    context.measure = OneProfiledBatchAtATime;
    const auto response = SolvePlanWith(*MakeDrlPpPlanner({.steps = 250}), request, context);
    ASSERT_TRUE(response.ok()) << response.status();
    ASSERT_TRUE(response->best.has_value()) << response->reason;
    found.emplace_back();
    for (const Stage& stage : response->best->plan.strategy.stages) {
      found.back().push_back(stage.devices.size());
    }
    if (found.back() == GetParam().replicas) return;
  }
  FAIL() << "seeds 1 to 3 end at " << ::testing::PrintToString(found);
}

INSTANTIATE_TEST_SUITE_P(Models, DrlPpPaperTest,
                         ::testing::Values(Case{"vgg16", {3, 1}}, Case{"alexnet", {3, 1}},
                                           Case{"resnet50", {4}}, Case{"gnmt", {1, 1, 1, 1}}),
                         [](const auto& test) { return std::string(test.param.profile); });

}  // namespace
}  // namespace stagewright
