// The bound against the optimum that the exhaustive search finds, on five hundred small problems.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "planner_service/evaluator/evaluator.h"
#include "planner_service/evaluator/lower_bound.h"
#include "planner_service/front_door/planner_table.h"
#include "tests/support/small_problems.h"

namespace stagewright {
namespace {

using testing::SmallProblem;

// How often the bound was below the optimum, and how far.
struct Tightness {
  int solved = 0;
  int close = 0;          // Within a tenth.
  double gap_before = 0;  // Sum of optimum / bound - 1, without Joint and Join.
  double gap = 0;
};

// What a problem permits beside what all do.
struct Permissions {
  Optimizer optimizer = Optimizer::kSgd;
  OptimizerSharding sharding = OptimizerSharding::kNone;
  PlanOptions plan;
};

// All combinations, one after the other.
Permissions PermissionsOf(int32_t index) {
  Permissions permissions;
  if (index % 2 == 1) permissions.optimizer = Optimizer::kAdam;
  if (index % 4 >= 2) permissions.sharding = OptimizerSharding::kStates;
  if (index % 32 >= 24 && index % 4 >= 2) permissions.sharding = OptimizerSharding::kGradients;
  permissions.plan.per_stage_micro_batch = index % 8 >= 4;
  permissions.plan.max_k = index % 16 >= 8 ? 2 : 1;
  return permissions;
}

void Compare(const SmallProblem& small, const char* planner, const Permissions& permissions,
             Tightness& tightness) {
  SCOPED_TRACE(small.name);
  BoundOptions options;
  options.optimizer = permissions.optimizer;
  options.sharding = permissions.sharding;
  const BoundParts parts = BoundPartsOf(small.graph, small.operators, small.cluster, *small.costs,
                                        small.mini_batch, options);
  SearchContext context;
  Problem problem = small.problem();
  problem.optimizer = permissions.optimizer;
  problem.optimizer_sharding = permissions.sharding;
  const Outcome outcome =
      MakePlanner(planner).value()->Solve(problem, permissions.plan, context).value();
  if (!outcome.strategy) return;
  EvaluateOptions evaluate;
  evaluate.optimizer = permissions.optimizer;
  const Nanos optimum =
      Evaluate(small.graph, small.cluster, *small.costs, *outcome.strategy, evaluate)
          ->iteration_time;
  EXPECT_GE(optimum, parts.Largest());
  ++tightness.solved;
  const auto gap = [&](Nanos bound) {
    return static_cast<double>(optimum) / static_cast<double>(bound) - 1;
  };
  tightness.gap_before += gap(std::max({parts.work, parts.node, parts.path}));
  tightness.gap += gap(parts.Largest());
  tightness.close += gap(parts.Largest()) < 0.1 ? 1 : 0;
}

void Report(const char* what, const Tightness& tightness) {
  std::printf("%s: %d solved, %d within 10 %%, mean gap %.1f %%, without Joint and Join %.1f %%\n",
              what, tightness.solved, tightness.close, 100 * tightness.gap / tightness.solved,
              100 * tightness.gap_before / tightness.solved);
}

TEST(LowerBoundPropertyTest, NoOptimumIsBelow) {
  Tightness small;
  for (int32_t i = 0; i < testing::kSmallProblems; ++i)
    Compare(*testing::MakeSmallProblem(i), "exact", {}, small);
  Report("small problems", small);
  Tightness lean;
  for (int32_t i = 0; i < testing::kLeanProblems; ++i)
    Compare(*testing::MakeLeanProblem(i), "exact", PermissionsOf(i), lean);
  Report("lean problems", lean);
  EXPECT_GT(small.solved + lean.solved, 450);
  EXPECT_LT(small.gap, small.gap_before);
  EXPECT_LT(lean.gap, lean.gap_before);
}

// Loops, split backward passes and orders of their own, which `exact` does not try.
TEST(LowerBoundPropertyTest, NoPlanOfAutoIsBelow) {
  Tightness lean;
  for (int32_t i = 0; i < testing::kLeanProblems; i += 5)
    Compare(*testing::MakeLeanProblem(i), "auto", PermissionsOf(i), lean);
  Report("lean problems, auto", lean);
  EXPECT_GT(lean.solved, 50);
  EXPECT_GT(lean.close, 5);
}

}  // namespace
}  // namespace stagewright
