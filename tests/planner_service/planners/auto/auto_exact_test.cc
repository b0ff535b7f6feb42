// The default planner against the optimum. A fifth of the small problems; all of them where the
// environment variable STAGEWRIGHT_ALL_SMALL_PROBLEMS is set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "planner_service/evaluator/evaluator.h"
#include "planner_service/front_door/planner_table.h"
#include "tests/support/small_problems.h"

namespace stagewright {
namespace {

double IterationTime(const Problem& problem, const Planner& planner) {
  SearchContext context;
  const auto outcome = planner.Solve(problem, PlanOptions(), context);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  if (!outcome.ok() || !outcome->strategy) return 0;
  EvaluateOptions options;
  options.optimizer = problem.optimizer;
  const auto evaluation =
      Evaluate(*problem.graph, *problem.cluster, *problem.costs, *outcome->strategy, options);
  EXPECT_TRUE(evaluation.ok()) << evaluation.status();
  return evaluation.ok() ? static_cast<double>(evaluation->iteration_time) : 0;
}

TEST(AutoExactTest, TheOptimumIsHardlyFaster) {
  const bool all = std::getenv("STAGEWRIGHT_ALL_SMALL_PROBLEMS") != nullptr;
  double sum = 0;
  double worst = 0;
  int32_t ahead = 0;
  int32_t compared = 0;
  for (int32_t i = 0; i < testing::kSmallProblems; i += all ? 1 : 5) {
    const auto small = testing::MakeSmallProblem(i);
    SCOPED_TRACE(small->name);
    const double exact = IterationTime(small->problem(), *MakePlanner("exact").value());
    const double found = IterationTime(small->problem(), *MakePlanner("auto").value());
    EXPECT_EQ(exact > 0, found > 0);
    if (exact <= 0 || found <= 0) continue;
    const double gap = found / exact - 1;
    EXPECT_LE(gap, 0.10);
    sum += std::max(gap, 0.0);
    worst = std::max(worst, gap);
    ahead += gap < -0.001 ? 1 : 0;
    ++compared;
  }
  ASSERT_GT(compared, 20);
  RecordProperty("mean_gap", std::to_string(sum / compared));
  RecordProperty("worst_gap", std::to_string(worst));
  RecordProperty("faster_than_exact", ahead);
  std::printf("%d problems: mean gap %.3f %%, worst %.3f %%, auto ahead on %d\n", compared,
              100 * sum / compared, 100 * worst, ahead);
  EXPECT_LE(sum / compared, 0.02);
}

}  // namespace
}  // namespace stagewright
