// Section 4.3: the placements that DRL-PP ends at on four devices, on our own VGG-16 and on the
// published profiles.
#include <gtest/gtest.h>

#include <cstdlib>

#include "common/topology/presets.h"
#include "planner_service/front_door/front_door.h"
#include "planner_service/importers/profile.h"
#include "planner_service/planners/drl_pp/drl_pp.h"
#include "tests/planner_service/planners/drl_pp/profiled_batches.h"
#include "tests/support/shared_graphs.h"

namespace stagewright {
namespace {

struct Case {
  const char* profile;
  std::vector<size_t> replicas;  // By stage.
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.profile; }

class DrlPpPaperTest : public ::testing::TestWithParam<Case> {};

TEST_P(DrlPpPaperTest, EndsAtThePaperSPlacement) {
  STAGEWRIGHT_SHARED_GRAPH_OR_SKIP(path, std::string(GetParam().profile) + ".graph.txt");
  const auto imported = ReadProfile(ProfileFormat::kPipeDream, path);
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
    context.measure = MeasureProfiledBatches;
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

std::string NameOf(const ::testing::TestParamInfo<Case>& test) {
  const std::string profile = test.param.profile;
  return profile.substr(profile.find('/') + 1);
}

INSTANTIATE_TEST_SUITE_P(Synthetic, DrlPpPaperTest,
                         ::testing::Values(Case{"synthetic/vgg16", {3, 1}}), NameOf);
INSTANTIATE_TEST_SUITE_P(Published, DrlPpPaperTest,
                         ::testing::Values(Case{"pipedream/alexnet", {3, 1}}), NameOf);
INSTANTIATE_TEST_SUITE_P(LongPublished, DrlPpPaperTest,
                         ::testing::Values(Case{"pipedream/vgg16", {3, 1}},
                                           Case{"pipedream/resnet50", {4}},
                                           Case{"pipedream/gnmt", {1, 1, 1, 1}}),
                         NameOf);

}  // namespace
}  // namespace stagewright
