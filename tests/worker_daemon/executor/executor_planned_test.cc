// What the default planner answers, split backward passes and all, trains as one process does.
#include <gtest/gtest.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/topology/cluster.h"
#include "common/topology/presets.h"
#include "planner_service/front_door/front_door.h"
#include "tests/worker_daemon/support/schedule_table.h"

namespace stagewright::testing {
namespace {

class Planned : public ::testing::TestWithParam<Combination> {};

TEST_P(Planned, TrainsAsOneProcessDoes) {
  const Combination& combination = GetParam();
  const Model model = LoadModel(combination.model + "_f64");
  const auto cluster = ClusterPreset(absl::StrCat("cpu:", 2 * combination.replicas));
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  PlanRequest request;
  request.graph = model.graph.get();
  request.cluster = &*cluster;
  request.mini_batch = 16;
  // Otherwise models as small as these would get one device.
  request.options.num_stages = 1 + combination.replicas;
  request.options.micro_batch = combination.uneven ? 0 : 4;
  request.options.per_stage_micro_batch = combination.uneven;
  request.options.recompute =
      combination.recompute ? RecomputePolicy::kAlways : RecomputePolicy::kNever;
  // Any plan will do; a machine that others keep busy takes longer to find one.
  absl::StatusOr<PlanResponse> response;
  for (int ms = 300; ms <= 9600 && !(response.ok() && response->best); ms *= 2) {
    SearchContext context(SearchContext::Clock::now() + std::chrono::milliseconds(ms));
    response = SolvePlan(request, context);
    ASSERT_TRUE(response.ok()) << response.status();
  }
  ASSERT_TRUE(response->best.has_value()) << response->reason;
  Strategy strategy = response->best->plan.strategy;
  Model planned = model;  // Operators that bind are cut.
  if (const auto& split = response->best->split_graphs)
    planned.graph = std::shared_ptr<const Graph>(split, &split->graph);
  ExpectTheSameTraining(planned, strategy, combination.ways);
}

INSTANTIATE_TEST_SUITE_P(All, Planned, ::testing::ValuesIn(Combinations({"Auto"})),
                         [](const auto& param_info) { return param_info.param.Name(); });

}  // namespace
}  // namespace stagewright::testing
