#include "planner_service/front_door/sharded_plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/topology/uniform.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

// Equal nodes in a chain whose parameters, of 40 MB each, dwarf their activations.
Graph LargeWeights(int nodes) {
  std::vector<testing::Work> work(nodes, {.forward = 500'000,
                                          .backward = 1'000'000,
                                          .activation_bytes = 10'000,
                                          .parameter_bytes = 40'000'000});
  for (int n = 1; n < nodes; ++n) work[n].after = {n - 1};
  return testing::ProfiledGraph(work);
}

Cluster Devices(int count, Bytes memory) {
  UniformSpec spec;
  spec.nodes = 1;
  spec.devices_per_node = count;
  spec.memory = memory;
  spec.inside = spec.outside = {"", 1'000, 100e9};
  return *MakeUniform(spec);
}

class ShardedPlansTest : public ::testing::Test {
 protected:
  absl::StatusOr<PlanResponse> Solve(const Cluster& cluster,
                                     std::optional<OptimizerSharding> sharding,
                                     const std::string& planner = "auto") const {
    PlanRequest request;
    request.graph = &graph_;
    request.cluster = &cluster;
    request.mini_batch = 16;
    request.planner = planner;
    request.options.optimizer_sharding = sharding;
    SearchContext context;
    return SolvePlan(request, context);
  }
  const Graph graph_ = LargeWeights(2);
};

// 80 MB of parameters: 320 MB with gradients and Adam's state, of which 160 MB are shared out.
TEST_F(ShardedPlansTest, SharedStatesFitWhereWholeOnesDoNot) {
  for (const char* planner : {"auto", "graphpipe", "data-parallel"}) {
    SCOPED_TRACE(planner);
    const Cluster small = Devices(4, Bytes(240'000'000));
    const auto shared = Solve(small, OptimizerSharding::kStates, planner);
    ASSERT_TRUE(shared.ok()) << shared.status();
    ASSERT_TRUE(shared->best) << shared->reason;
    EXPECT_EQ(shared->best->plan.strategy.optimizer_sharding, OptimizerSharding::kStates);
    for (const DeviceUse& use : shared->best->evaluation.devices)
      EXPECT_LE(use.peak_memory, 240'000'000);
    EXPECT_GE(shared->best->evaluation.iteration_time, shared->lower_bound);
  }
}

// Saved by a micro-batch as much as its gradients take: 80 MB of parameters are 160 MB with those,
// and 160 MB of Adam's state are shared out. With the gradients, too, what is saved goes as they
// come.
TEST_F(ShardedPlansTest, SharedGradientsFitWhereWholeOnesDoNot) {
  std::vector<testing::Work> work(8, {.forward = 100'000,
                                      .backward = 200'000,
                                      .activation_bytes = 10'000'000,
                                      .parameter_bytes = 10'000'000});
  for (int n = 1; n < 8; ++n) work[n].after = {n - 1};
  const Graph graph = testing::ProfiledGraph(work);
  const Cluster cluster = Devices(4, Bytes(240'000'000));
  PlanRequest request;
  request.graph = &graph;
  request.cluster = &cluster;
  request.mini_batch = 16;
  request.planner = "data-parallel";
  const auto solve = [&](std::optional<OptimizerSharding> sharding) {
    SearchContext context;
    request.options.optimizer_sharding = sharding;
    return SolvePlan(request, context);
  };
  const auto states = solve(OptimizerSharding::kStates);
  ASSERT_TRUE(states.ok()) << states.status();
  EXPECT_FALSE(states->best.has_value());
  for (const auto sharding :
       {std::optional(OptimizerSharding::kGradients), std::optional<OptimizerSharding>()}) {
    const auto found = solve(sharding);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_TRUE(found->best) << found->reason;
    EXPECT_EQ(found->best->plan.strategy.optimizer_sharding, OptimizerSharding::kGradients);
    for (const DeviceUse& use : found->best->evaluation.devices)
      EXPECT_LE(use.peak_memory, 240'000'000);
    EXPECT_GE(found->best->evaluation.iteration_time, found->lower_bound);
  }
}

TEST_F(ShardedPlansTest, EitherIsNeverSlowerThanOne) {
  for (const int64_t megabytes : {130, 240, 400, 4000}) {
    for (const char* planner : {"auto", "data-parallel", "pipedream"}) {
      SCOPED_TRACE(absl::StrCat(planner, " on devices of ", megabytes, " MB"));
      const Cluster cluster = Devices(4, Bytes(megabytes * 1'000'000));
      const auto whole = Solve(cluster, OptimizerSharding::kNone, planner);
      const auto shared = Solve(cluster, OptimizerSharding::kStates, planner);
      const auto either = Solve(cluster, std::nullopt, planner);
      ASSERT_TRUE(whole.ok() && shared.ok()) << whole.status() << shared.status();
      ASSERT_TRUE(either.ok()) << either.status();
      EXPECT_EQ(either->best.has_value(), whole->best.has_value() || shared->best.has_value());
      for (const PlanResponse* one : {&*whole, &*shared}) {
        if (!one->best.has_value()) continue;
        EXPECT_LE(either->best->evaluation.iteration_time, one->best->evaluation.iteration_time);
      }
      if (!either->best.has_value()) continue;
      EXPECT_GE(either->best->evaluation.iteration_time, either->lower_bound);
    }
  }
}

TEST_F(ShardedPlansTest, AnAnswerOfWhichTheClockCutAPartShortDependsOnTheClock) {
  const Cluster cluster = Devices(4, Bytes(4'000'000'000));
  PlanRequest request;
  request.graph = &graph_;
  request.cluster = &cluster;
  const auto until = SearchContext::Clock::now() + std::chrono::seconds(1);
  for (const bool whole_is_slow : {false, true}) {
    SearchContext context(whole_is_slow ? until : SearchContext::Clock::time_point::max());
    bool stopped_before_second = true;
    const auto answer = SolveEitherSharding(
        request, context, {},
        [&](const PlanRequest& one, SearchContext& search, const ImprovementCallback&) {
          const bool whole = one.options.optimizer_sharding == OptimizerSharding::kNone;
          while (whole && whole_is_slow && !search.Expired()) {
          }
          if (!whole) stopped_before_second = search.Stopped();
          return absl::StatusOr<PlanResponse>(PlanResponse());
        });
    EXPECT_TRUE(answer.ok()) << answer.status();
    EXPECT_FALSE(stopped_before_second);
    EXPECT_EQ(context.Stopped(), whole_is_slow);
  }
}

TEST_F(ShardedPlansTest, AsynchronousPlansKeepWholeStates) {
  PlanRequest request;
  const Cluster cluster = Devices(4, Bytes(4'000'000'000));
  request.graph = &graph_;
  request.cluster = &cluster;
  request.mini_batch = 16;
  request.options.asynchronous = true;
  request.options.optimizer_sharding = std::nullopt;
  SearchContext context;
  const auto either = SolvePlan(request, context);
  ASSERT_TRUE(either.ok() && either->best) << either.status();
  EXPECT_EQ(either->best->plan.strategy.optimizer_sharding, OptimizerSharding::kNone);
  for (OptimizerSharding sharding : {OptimizerSharding::kStates, OptimizerSharding::kGradients}) {
    request.options.optimizer_sharding = sharding;
    const auto shared = SolvePlan(request, context);
    EXPECT_TRUE(absl::IsInvalidArgument(shared.status()));
    EXPECT_THAT(std::string(shared.status().message()), HasSubstr("options.optimizer_sharding"));
  }
}

}  // namespace
}  // namespace stagewright
