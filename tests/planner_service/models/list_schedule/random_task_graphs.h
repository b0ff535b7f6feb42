// Task graphs of all kinds: replicas, loops, recomputation, devices of two kinds, slow and shared
// links.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "planner_service/models/list_schedule/task_graph.h"
#include "tests/support/random.h"
#include "tests/support/small_problems.h"
#include "tests/support/strategies.h"

namespace stagewright::testing {

// Calls `check` with the task graphs of some random drafts of every small and every lean problem.
template <typename Check>
void ForRandomTaskGraphs(Rng& random, Check check) {
  for (int32_t i = 0; i < kSmallProblems + kLeanProblems; ++i) {
    const auto problem =
        i < kSmallProblems ? MakeSmallProblem(i) : MakeLeanProblem(i - kSmallProblems);
    SCOPED_TRACE(problem->name);
    const Problem search = problem->problem();
    const OperatorCosts costs(search);
    for (int32_t draw = 0; draw < 3; ++draw) {
      std::optional<Draft> draft =
          ToDraft(search, RandomStrategy(random, problem->graph, problem->operators,
                                         problem->cluster, problem->mini_batch));
      if (!draft.has_value()) continue;
      for (DraftStage& stage : draft->stages) stage.recompute = Uniform(random, 0, 3) == 0;
      ASSERT_TRUE(SortStages(problem->operators.dag(), *draft));
      check(MakeTaskGraph(costs, *draft, 1));
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace stagewright::testing
