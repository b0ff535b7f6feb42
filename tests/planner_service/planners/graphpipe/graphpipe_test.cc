#include "planner_service/planners/graphpipe/graphpipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "common/cost/parameters.h"
#include "common/topology/presets.h"
#include "planner_service/evaluator/evaluator.h"
#include "tests/planner_service/planners/graphpipe/search_case.h"
#include "tests/support/clusters.h"
#include "tests/support/model_graphs.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/stopwatch.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using testing::Rng;
using testing::SearchCase;
using testing::Uniform;
using testing::Work;

Outcome Solve(const Planner& planner, const Problem& problem, const PlanOptions& options = {}) {
  SearchContext context;
  auto outcome = planner.Solve(problem, options, context);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return outcome.ok() ? *std::move(outcome) : Outcome{};
}

absl::StatusOr<Evaluation> Judge(const Problem& problem, const Strategy& strategy) {
  EvaluateOptions options;
  options.optimizer = problem.optimizer;
  return Evaluate(*problem.graph, *problem.cluster, *problem.costs, strategy, options);
}

// A strategy as text, to compare two.
std::string Describe(const Strategy& strategy) {
  std::string text = absl::StrCat(static_cast<int>(strategy.kind), ":", strategy.mini_batch);
  for (const Stage& stage : strategy.stages) {
    absl::StrAppend(&text, " |b", stage.micro_batch, "i", stage.schedule.in_flight, "k",
                    stage.schedule.k, " d");
    for (DeviceId device : stage.devices) absl::StrAppend(&text, device.value(), ",");
    absl::StrAppend(&text, " n");
    for (NodeId node : stage.nodes) absl::StrAppend(&text, node.value(), ",");
  }
  return text;
}

// Options drawn at random; anything may turn out to be infeasible.
PlanOptions RandomOptions(Rng& random, int64_t mini_batch) {
  PlanOptions options;
  options.allow_replicas = Uniform(random, 0, 2) > 0;
  if (Uniform(random, 0, 3) == 0) options.num_stages = static_cast<int32_t>(Uniform(random, 1, 6));
  if (Uniform(random, 0, 4) == 0) options.max_stages = static_cast<int32_t>(Uniform(random, 1, 6));
  if (Uniform(random, 0, 3) == 0) {
    options.micro_batch = int64_t{1} << Uniform(random, 0, 3);
    if (mini_batch % options.micro_batch != 0) options.micro_batch = 1;
  }
  options.per_stage_micro_batch = Uniform(random, 0, 5) == 0;
  if (Uniform(random, 0, 5) == 0) options.max_k = 2;
  options.recompute = static_cast<RecomputePolicy>(Uniform(random, 0, 2));
  return options;
}

void ExpectHonours(const Strategy& strategy, const PlanOptions& options) {
  const auto stages = static_cast<int32_t>(strategy.stages.size());
  if (options.num_stages > 0) {
    EXPECT_EQ(stages, options.num_stages);
  }
  if (options.max_stages > 0) {
    EXPECT_LE(stages, options.max_stages);
  }
  std::set<int64_t> sizes;
  for (const Stage& stage : strategy.stages) {
    sizes.insert(stage.micro_batch);
    EXPECT_LE(stage.schedule.k, options.max_k);
    if (options.recompute == RecomputePolicy::kNever) {
      EXPECT_FALSE(stage.recompute);
    }
    if (options.recompute == RecomputePolicy::kAlways) {
      EXPECT_TRUE(stage.recompute);
    }
    if (options.micro_batch > 0) {
      EXPECT_EQ(stage.micro_batch, options.micro_batch);
    }
    if (!options.allow_replicas) {
      EXPECT_EQ(stage.devices.size(), 1u);
    }
  }
  if (!options.per_stage_micro_batch) {
    EXPECT_EQ(sizes.size(), 1u);
  }
}

// Whatever the model and the cluster, what a planner returns passes the evaluator.
void ExpectEveryPlanPasses(const Planner& planner, uint64_t seed, int rounds) {
  Rng random(seed);
  int found = 0;
  int infeasible = 0;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    const auto size = static_cast<int32_t>(Uniform(random, 1, 12));
    Graph graph = Uniform(random, 0, 1) == 0 ? testing::RandomProfile(random, size)
                                             : testing::RandomNetwork(random, size);
    const int64_t mini_batch = Uniform(random, 0, 3) == 0 ? Uniform(random, 1, 12) : 16;
    const SearchCase c(std::move(graph), testing::RandomCluster(random, 8), mini_batch,
                       Optimizer::kAdam);
    const PlanOptions options = RandomOptions(random, mini_batch);
    const Outcome outcome = Solve(planner, c.problem, options);
    if (!outcome.strategy.has_value()) {
      EXPECT_NE(outcome.termination, Termination::kFeasible);
      EXPECT_FALSE(outcome.reason.empty());
      ++infeasible;
      continue;
    }
    ++found;
    const auto evaluation = Judge(c.problem, *outcome.strategy);
    ASSERT_TRUE(evaluation.ok()) << evaluation.status();
    ExpectHonours(*outcome.strategy, options);
    if (round % 10 == 0) {
      const Outcome again = Solve(planner, c.problem, options);
      EXPECT_EQ(Describe(*outcome.strategy), Describe(*again.strategy));
      EXPECT_EQ(outcome.states, again.states);
    }
  }
  EXPECT_GT(found, rounds / 3);
  EXPECT_GT(infeasible, 0);
}

TEST(GraphPipeTest, EveryPlanPassesTheEvaluator) {
  ExpectEveryPlanPasses(*MakeGraphPipePlanner(), 31, 1000);
}

TEST(SequentialTest, EveryPlanPassesTheEvaluator) {
  ExpectEveryPlanPasses(*MakeSequentialPlanner(), 32, 300);
}

TEST(SequentialTest, StagesFormAChain) {
  Rng random(33);
  for (int round = 0; round < 50; ++round) {
    const SearchCase c(testing::RandomProfile(random, 10), testing::FlatCluster(4), 8);
    const Outcome outcome = Solve(*MakeSequentialPlanner(), c.problem);
    ASSERT_TRUE(outcome.strategy.has_value()) << outcome.reason;
    EXPECT_EQ(outcome.strategy->kind, StrategyKind::kSequential);
    const auto evaluation = Judge(c.problem, *outcome.strategy);
    ASSERT_TRUE(evaluation.ok()) << evaluation.status();
    EXPECT_EQ(evaluation->depth, static_cast<int32_t>(outcome.strategy->stages.size()));
  }
}

// Two branches of three operators and a join, close to what fits.
SearchCase Branches() {
  const Work work{10 * kMicrosecond, 20 * kMicrosecond, kMiB, kMiB};
  std::vector<Work> nodes(7, work);
  nodes[1].after = {0};
  nodes[2].after = {1};
  nodes[4].after = {3};
  nodes[5].after = {4};
  nodes[6].after = {2, 5};
  return SearchCase(testing::ProfiledGraph(nodes), testing::FlatCluster(6, kGiB, 0, 1e12), 16);
}

TEST(GraphPipeTest, SequentialPlansOnRequest) {
  const SearchCase c = Branches();
  PlanOptions options;
  options.num_stages = 4;
  options.sequential = true;
  const Outcome asked = Solve(*MakeGraphPipePlanner(), c.problem, options);
  ASSERT_TRUE(asked.strategy) << asked.reason;
  EXPECT_EQ(asked.strategy->kind, StrategyKind::kSequential);
  const auto evaluation = Judge(c.problem, *asked.strategy);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_EQ(evaluation->depth, 4);
  options.sequential = false;
  const Outcome free = Solve(*MakeGraphPipePlanner(), c.problem, options);
  EXPECT_EQ(free.strategy->kind, StrategyKind::kGraph);
}

// A large device and one that holds next to nothing.
TEST(GraphPipeTest, OneLargeDeviceIsEnough) {
  for (int32_t large : {0, 1}) {
    SCOPED_TRACE(large);
    ClusterData data = testing::FlatCluster(2).data();
    data.devices[1 - large].memory = 100'000'000;
    const SearchCase c(testing::ProfiledChain(24, {kMillisecond, kMillisecond, kMiB, 32 * kMiB}),
                       *Cluster::Create(data), 8);
    for (const auto& planner : {MakeGraphPipePlanner(), MakeSequentialPlanner()}) {
      const Outcome outcome = Solve(*planner, c.problem);
      ASSERT_TRUE(outcome.strategy) << outcome.reason;
      EXPECT_TRUE(Judge(c.problem, *outcome.strategy).ok());
    }
  }
}

TEST(GraphPipeTest, UsesExactlyTheStagesAskedFor) {
  const SearchCase c = Branches();
  for (const auto& planner : {MakeGraphPipePlanner(), MakeSequentialPlanner()}) {
    for (int32_t stages = 1; stages <= 6; ++stages) {
      PlanOptions options;
      options.num_stages = stages;
      const Outcome outcome = Solve(*planner, c.problem, options);
      ASSERT_TRUE(outcome.strategy.has_value()) << outcome.reason;
      EXPECT_EQ(static_cast<int32_t>(outcome.strategy->stages.size()), stages);
    }
  }
}

TEST(GraphPipeTest, ReportsEachImprovement) {
  const SearchCase c = Branches();
  SearchContext context;
  std::vector<Nanos> times;
  context.on_improvement = [&](const Strategy& strategy) {
    times.push_back(Judge(c.problem, strategy)->iteration_time);
  };
  const auto outcome = MakeGraphPipePlanner()->Solve(c.problem, {}, context);
  ASSERT_TRUE(outcome.ok());
  ASSERT_FALSE(times.empty());
  for (size_t i = 1; i < times.size(); ++i) EXPECT_LE(times[i], times[i - 1]);
  EXPECT_EQ(times.back(), Judge(c.problem, *outcome->strategy)->iteration_time);
  EXPECT_GT(outcome->states, 0);
  EXPECT_GE(outcome->candidates, static_cast<int64_t>(times.size()));
  EXPECT_EQ(outcome->termination, Termination::kFeasible);
}

TEST(GraphPipeTest, HasAnAnswerBeforeItSearches) {
  for (const auto& planner : {MakeGraphPipePlanner(), MakeSequentialPlanner()}) {
    const SearchCase c = Branches();
    SearchContext context;
    int improvements = 0;
    context.on_improvement = [&](const Strategy& strategy) {
      EXPECT_EQ(strategy.stages.size(), 1u);
      ++improvements;
      context.Cancel();
    };
    const auto outcome = planner->Solve(c.problem, {}, context);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(improvements, 1);
    EXPECT_EQ(outcome->termination, Termination::kLimit);
    ASSERT_TRUE(outcome->strategy);
    EXPECT_TRUE(Judge(c.problem, *outcome->strategy).ok());
  }
}

TEST(GraphPipeTest, StopsWhenCancelledOrLate) {
  const SearchCase c(testing::ProfiledChain(600, {kMicrosecond, kMicrosecond, kKiB, kKiB}),
                     testing::FlatCluster(64), 1024);
  SearchContext cancelled;
  cancelled.Cancel();
  const auto nothing = MakeGraphPipePlanner()->Solve(c.problem, {}, cancelled);
  ASSERT_TRUE(nothing.ok());
  EXPECT_EQ(nothing->termination, Termination::kLimit);
  EXPECT_FALSE(nothing->reason.empty());

  // Far less than the search takes on any machine, so that it never ends by itself.
  constexpr auto kAllowed = std::chrono::milliseconds(5);
  const testing::Stopwatch watch;
  SearchContext late(SearchContext::Clock::now() + kAllowed);
  const auto outcome = MakeGraphPipePlanner()->Solve(c.problem, {}, late);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->termination, Termination::kLimit);
  EXPECT_LT(watch.Elapsed(), kAllowed + std::chrono::milliseconds(300));
}

TEST(GraphPipeTest, SaysWhichOperatorDoesNotFit) {
  std::vector<Work> nodes(3, {kMicrosecond, kMicrosecond, kKiB, kKiB});
  nodes[1].after = {0};
  nodes[2].after = {1};
  nodes[1].parameter_bytes = kGiB;
  const SearchCase c(testing::ProfiledGraph(nodes), testing::FlatCluster(4, kGiB), 8,
                     Optimizer::kAdam);
  const Outcome outcome = Solve(*MakeGraphPipePlanner(), c.problem);
  EXPECT_EQ(outcome.termination, Termination::kInfeasible);
  EXPECT_THAT(outcome.reason, HasSubstr("operator 'n1' alone needs 4"));
  EXPECT_THAT(outcome.reason, HasSubstr("has 1 GiB"));
}

TEST(GraphPipeTest, SaysHowManyDevicesWouldDo) {
  const SearchCase c(testing::ProfiledChain(8, {kMicrosecond, kMicrosecond, kKiB, 100 * kMiB}),
                     testing::FlatCluster(3, kGiB), 8, Optimizer::kAdam);
  const Outcome outcome = Solve(*MakeGraphPipePlanner(), c.problem);
  EXPECT_EQ(outcome.termination, Termination::kInfeasible);
  EXPECT_THAT(outcome.reason, HasSubstr("3.12 GiB"));

  // 2 operators a device: 4 devices would do.
  const SearchCase tight(testing::ProfiledChain(8, {kMicrosecond, kMicrosecond, kKiB, 90 * kMiB}),
                         testing::FlatCluster(3, kGiB), 8, Optimizer::kAdam);
  const Outcome fewer = Solve(*MakeGraphPipePlanner(), tight.problem);
  EXPECT_EQ(fewer.termination, Termination::kLimit);
  EXPECT_THAT(fewer.reason, HasSubstr("does not prove"));
  EXPECT_THAT(fewer.reason, HasSubstr("the model needs 4 devices of 1 GiB"));
  EXPECT_THAT(fewer.reason, HasSubstr("but there are 3"));
}

TEST(GraphPipeTest, SaysWhichOptionCannotBeMet) {
  const SearchCase c = Branches();
  PlanOptions options;
  options.num_stages = 7;
  EXPECT_THAT(Solve(*MakeGraphPipePlanner(), c.problem, options).reason,
              HasSubstr("num_stages is 7, but 6 devices with at most 1 stage each"));
  options.num_stages = 8;
  EXPECT_THAT(Solve(*MakeGraphPipePlanner(), c.problem, options).reason,
              HasSubstr("only 7 operators"));
  options = {};
  options.micro_batch = 3;
  EXPECT_THAT(Solve(*MakeGraphPipePlanner(), c.problem, options).reason,
              HasSubstr("micro_batch 3 does not divide"));
}

// Four stages whose first would have to hold four micro-batches of 300 MiB, which do not fit.
TEST(GraphPipeTest, RecomputesOnlyWhereMemoryBinds) {
  std::vector<Work> nodes;
  for (int32_t v = 0; v < 8; ++v) {
    const Bytes kept = v % 2 == 0 ? 300 * kMiB : kMiB;
    nodes.push_back({100 * kMicrosecond, 200 * kMicrosecond, kept, kMiB});
    if (v > 0) nodes[v].after = {v - 1};
  }
  PlanOptions options;
  options.micro_batch = 1;
  options.num_stages = 4;
  const auto solve = [&](Bytes memory) {
    const SearchCase c(testing::ProfiledGraph(nodes), testing::FlatCluster(4, memory, 0, 1e15), 16);
    const Outcome outcome = Solve(*MakeGraphPipePlanner(), c.problem, options);
    if (outcome.strategy.has_value()) {
      EXPECT_TRUE(Judge(c.problem, *outcome.strategy).ok());
    }
    return outcome;
  };
  const Outcome kept = solve(64 * kGiB);
  ASSERT_TRUE(kept.strategy.has_value()) << kept.reason;
  for (const Stage& stage : kept.strategy->stages) EXPECT_FALSE(stage.recompute);

  const Outcome tight = solve(1000 * kMiB);
  ASSERT_TRUE(tight.strategy.has_value()) << tight.reason;
  EXPECT_TRUE(tight.strategy->stages[0].recompute);
  EXPECT_FALSE(tight.strategy->stages[3].recompute);

  options.recompute = RecomputePolicy::kNever;
  EXPECT_FALSE(solve(1000 * kMiB).strategy.has_value());
}

// Branches whose operators are efficient at different sizes: only per-stage sizes suit both.
TEST(GraphPipeTest, PerStageMicroBatchesAreNeverBehindOneSize) {
  Rng random(61);
  for (int round = 0; round < 20; ++round) {
    const SearchCase c(testing::RandomNetwork(random, 10), testing::FlatCluster(4), 16);
    PlanOptions options;
    const Outcome one = Solve(*MakeGraphPipePlanner(), c.problem, options);
    options.per_stage_micro_batch = true;
    options.max_k = 2;
    const Outcome several = Solve(*MakeGraphPipePlanner(), c.problem, options);
    ASSERT_TRUE(one.strategy.has_value() && several.strategy.has_value());
    const auto before = Judge(c.problem, *one.strategy);
    const auto after = Judge(c.problem, *several.strategy);
    ASSERT_TRUE(before.ok() && after.ok());
    EXPECT_LE(ToSeconds(after->iteration_time), 1.02 * ToSeconds(before->iteration_time));
  }
}

// A deadline is honoured within 100 ms however large the model is.
TEST(GraphPipeTest, ALargeModelStopsOnTime) {
  const SearchCase c(testing::MmtGraph(8, 64), *ClusterPreset("summit:32"), 2048);
  for (int ms : {1, 20, 100, 300}) {
    const testing::Stopwatch watch;
    SearchContext context(SearchContext::Clock::now() + std::chrono::milliseconds(ms));
    const auto outcome = MakeGraphPipePlanner()->Solve(c.problem, {}, context);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_LT(watch.Elapsed().count(), ms + 500);  // 100 ms, and more for slow builds.
  }
}

}  // namespace
}  // namespace stagewright
