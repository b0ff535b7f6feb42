#include "planner_service/planners/exact/exact_search.h"

#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "common/strategy/in_flight.h"
#include "planner_service/evaluator/evaluator.h"
#include "planner_service/front_door/planner_table.h"
#include "tests/support/clusters.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/small_problems.h"

namespace stagewright {
namespace {

using testing::MakeSmallProblem;
using testing::RatedProfileCosts;
using testing::Rng;
using testing::Uniform;

struct Answer {
  double time = 0;
  int64_t evaluations = 0;
};

Answer Search(const Problem& problem, const PlanOptions& options, bool prune) {
  SearchContext context;
  ExactSearch search(problem, options, context, 0);
  search.set_prune(prune);
  EXPECT_TRUE(search.Run().value());
  return {search.best_time(), search.evaluations()};
}

// Every strategy in scope is simulated, and none is faster than what the bounds leave.
TEST(ExactSearchTest, EqualsEnumerationWithoutBounds) {
  Rng random(3);
  int64_t all = 0;
  int64_t left = 0;
  int found = 0;
  for (int i = 0; i < 150; ++i) {
    SCOPED_TRACE(i);
    const auto n = static_cast<int32_t>(Uniform(random, 1, 5));
    const Graph graph = Uniform(random, 0, 1) == 0 ? testing::RandomProfile(random, n)
                                                   : testing::RandomNetwork(random, std::min(n, 3));
    ClusterData data = testing::RandomCluster(random, 3).data();
    // Little memory in half of the cases, so that stages recompute or do not fit.
    for (Device& device : data.devices) {
      if (Uniform(random, 0, 1) == 0) device.memory = Uniform(random, 1, 300) * kMiB;
    }
    // A stage's step has it once, however many of its operators train.
    for (DeviceKind& kind : data.kinds) kind.step_overhead = i % 3 * 300 * kMicrosecond;
    const Cluster cluster = Cluster::Create(std::move(data)).value();
    const OperatorGraph operators = OneOperatorPerNode(graph).value();
    const auto costs = MakeAnalyticCostModel(graph);
    const Problem problem{&graph,         &operators, &cluster, costs.get(), Uniform(random, 1, 6),
                          Optimizer::kSgd};
    PlanOptions options;
    options.max_k = static_cast<int32_t>(Uniform(random, 1, 2));
    if (Uniform(random, 0, 3) == 0) options.recompute = RecomputePolicy::kNever;
    if (Uniform(random, 0, 5) == 0) options.sequential = true;
    const Answer plain = Search(problem, options, false);
    const Answer pruned = Search(problem, options, true);
    EXPECT_EQ(plain.time, pruned.time);
    found += plain.time < 1e300 ? 1 : 0;
    all += plain.evaluations;
    left += pruned.evaluations;
  }
  EXPECT_GT(found, 80);
  EXPECT_LT(left * 5, all);
}

// The bounds rule out no faster strategy where symmetry, mixed devices and launches play a part.
TEST(ExactSearchTest, EqualsEnumerationOnSmallProblems) {
  int checked = 0;
  for (int32_t i = 0; i < testing::kSmallProblems && checked < 12; ++i) {
    const auto small = MakeSmallProblem(i);
    if (small->operators.size() > 5 || small->cluster.size() > 3) continue;
    SCOPED_TRACE(small->name);
    ++checked;
    EXPECT_EQ(Search(small->problem(), {}, false).time, Search(small->problem(), {}, true).time);
  }
  EXPECT_GE(checked, 8);
}

// Strategies of other planners that are in scope.
TEST(ExactSearchTest, NoPlannerInScopeIsBetter) {
  for (int32_t i = 0; i < 25; ++i) {
    const auto small = MakeSmallProblem(i);
    if (small->operators.size() > 8) continue;
    SCOPED_TRACE(small->name);
    const Problem problem = small->problem();
    const double best = Search(problem, {}, true).time;
    for (const char* name : {"single", "data-parallel", "graphpipe"}) {
      SearchContext context;
      const Outcome outcome = MakePlanner(name).value()->Solve(problem, {}, context).value();
      if (!outcome.strategy || outcome.strategy->kind == StrategyKind::kSequential) continue;
      // Samples in flight as AssignInFlight has them.
      Strategy plain = *outcome.strategy;
      AssignInFlight(plain);
      EvaluateOptions evaluate;
      evaluate.optimizer = problem.optimizer;
      const auto evaluation =
          Evaluate(small->graph, small->cluster, *small->costs, plain, evaluate);
      if (!evaluation.ok()) continue;
      EXPECT_LE(best, static_cast<double>(evaluation->iteration_time)) << name;
    }
  }
}

TEST(ExactSearchTest, StartsFromASeedAndStopsAtTheBound) {
  const auto small = MakeSmallProblem(0);
  const Problem problem = small->problem();
  SearchContext context;
  ExactSearch first(problem, {}, context, 0);
  ASSERT_TRUE(first.Run().value());
  ASSERT_TRUE(first.best());
  ExactSearch second(problem, {}, context, 0);
  ASSERT_TRUE(second.Seed(*first.best()).ok());
  ASSERT_TRUE(second.Run().value());
  EXPECT_EQ(second.best_time(), first.best_time());
  EXPECT_LE(second.evaluations(), first.evaluations());
  ExactSearch third(problem, {}, context, static_cast<Nanos>(first.best_time()));
  ASSERT_TRUE(third.Seed(*first.best()).ok());
  ASSERT_TRUE(third.Run().value());
  EXPECT_EQ(third.nodes(), 0);
}

}  // namespace
}  // namespace stagewright
