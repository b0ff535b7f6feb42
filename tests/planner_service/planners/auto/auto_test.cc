#include "planner_service/planners/auto/auto.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "common/program/text.h"
#include "common/topology/presets.h"
#include "common/topology/uniform.h"
#include "common/wire/graph_file.h"
#include "planner_service/front_door/front_door.h"
#include "planner_service/front_door/planner_table.h"
#include "planner_service/planners/auto/effort.h"
#include "tests/support/checkout/source_path.h"
#include "tests/support/clusters.h"
#include "tests/support/model_graphs.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/search_case.h"
#include "tests/support/small_problems.h"

namespace stagewright {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ProfiledChain;
using testing::ProfiledGraph;
using testing::RatedProfileCosts;
using testing::Rng;
using testing::Work;

PlanRequest RequestFor(const Graph& graph, const Cluster& cluster, int64_t mini_batch) {
  PlanRequest request;
  request.graph = &graph;
  request.cluster = &cluster;
  request.mini_batch = mini_batch;
  request.optimizer = Optimizer::kSgd;
  return request;
}

PlanResponse Solve(const PlanRequest& request) {
  SearchContext context;
  auto response = SolvePlan(request, context);
  EXPECT_TRUE(response.ok()) << response.status();
  return response.ok() ? *std::move(response) : PlanResponse();
}

// Problems of which one budget or another alone would take minutes.
TEST(AutoTest, WorkIsBoundedWhateverTheProblem) {
  struct Case {
    Graph graph;
    int32_t devices;
    int64_t mini_batch;
  };
  std::vector<Case> cases;
  cases.push_back({testing::UnevenChain(1200), 64, 512});
  cases.push_back({testing::MmtGraph(4, 4), 8, 1'000'000});
  cases.push_back({testing::DlrmGraph(200, 200), 32, 512});
  for (const Case& one : cases) {
    const Cluster cluster = *UniformPreset("uniform:" + std::to_string(one.devices));
    PlanRequest request = RequestFor(one.graph, cluster, one.mini_batch);
    request.options.try_splits = false;
    SearchContext context;
    const auto response = SolvePlan(request, context);
    ASSERT_TRUE(response.ok() && response->best) << response.status();
    EXPECT_NE(response->termination, Termination::kLimit);
    EXPECT_LE(4 * context.work(), 5 * kMostWork) << one.graph.size();
  }
}

// On large graphs the bound takes seconds.
TEST(AutoTest, ABoundThatIsKnownIsNotWorkedOutAgain) {
  const testing::SearchCase c(testing::MmtGraph(2, 2), *UniformPreset("uniform:4"), 16);
  const auto planner = MakeAutoPlanner();
  SearchContext alone;
  const auto asked = planner->Solve(c.problem, {}, alone);
  ASSERT_TRUE(asked.ok() && asked->strategy && asked->lower_bound) << asked.status();
  EXPECT_EQ(asked->termination, Termination::kFeasible);
  SearchContext told;
  told.lower_bound = 2 * *asked->lower_bound + kSecond;
  const auto knows = planner->Solve(c.problem, {}, told);
  ASSERT_TRUE(knows.ok() && knows->strategy) << knows.status();
  EXPECT_EQ(knows->lower_bound, told.lower_bound);
  EXPECT_EQ(knows->termination, Termination::kOptimal);
}

TEST(AutoTest, IsTheDefault) {
  EXPECT_EQ(PlanRequest().planner, kDefaultPlanner);
  EXPECT_STREQ(RegisteredPlanners().front().name, kDefaultPlanner);
}

TEST(AutoTest, IsNeverSlowerThanAnyOtherPlanner) {
  Rng random(51);
  for (int i = 0; i < 8; ++i) {
    SCOPED_TRACE(i);
    const Graph graph =
        i % 2 == 0 ? testing::RandomNetwork(random, 14) : testing::RandomProfile(random, 14);
    const Cluster cluster = testing::RandomCluster(random, 6);
    PlanRequest request = RequestFor(graph, cluster, 12);
    const PlanResponse best = Solve(request);
    for (const RegisteredPlanner& entry : RegisteredPlanners()) {
      if (std::string(entry.name) == kDefaultPlanner || std::string(entry.name) == "exact")
        continue;
      request.planner = entry.name;
      const PlanResponse other = Solve(request);
      if (!other.best) continue;
      ASSERT_TRUE(best.best) << best.reason;
      EXPECT_LE(best.best->evaluation.iteration_time, other.best->evaluation.iteration_time)
          << entry.name;
    }
  }
}

// Four branches of six operators, a source and a join.
Graph Branches() {
  std::vector<Work> nodes(1, {0, 0, kKiB, 0, {}});
  std::vector<int32_t> ends;
  for (int32_t b = 0; b < 4; ++b) {
    for (int32_t l = 0; l < 6; ++l) {
      const auto v = static_cast<int32_t>(nodes.size());
      nodes.push_back({kMillisecond, 2 * kMillisecond, kMiB, kMiB, {l == 0 ? 0 : v - 1}});
    }
    ends.push_back(static_cast<int32_t>(nodes.size()) - 1);
  }
  nodes.push_back({kMillisecond / 2, kMillisecond, kMiB, kMiB, ends});
  return ProfiledGraph(nodes);
}

TEST(AutoTest, ReturnsTheBestSequentialPipelineBesideTheBest) {
  const Graph graph = Branches();
  const Cluster cluster = *UniformPreset("uniform:4");
  PlanRequest request = RequestFor(graph, cluster, 4);
  request.compare_sequential = true;
  const PlanResponse response = Solve(request);
  ASSERT_TRUE(response.best && response.sequential);
  EXPECT_EQ(response.sequential->plan.strategy.kind, StrategyKind::kSequential);
  EXPECT_LE(response.best->evaluation.iteration_time,
            response.sequential->evaluation.iteration_time);
  request.planner = kSequentialPlanner;
  EXPECT_LE(response.sequential->evaluation.iteration_time,
            Solve(request).best->evaluation.iteration_time);
  // A branch per device leaves only the join to share out: 4 * 6 * 3 ms and a fourth of it.
  EXPECT_LT(ToSeconds(response.best->evaluation.iteration_time), 1.04 * (72 + 1.5) * 1e-3);
}

TEST(AutoTest, KeepsToSequentialPipelinesAndWholeBackwardPassesIfAsked) {
  const Graph graph = Branches();
  const Cluster cluster = *UniformPreset("uniform:4");
  PlanRequest request = RequestFor(graph, cluster, 8);
  request.options.sequential = true;
  const PlanResponse sequential = Solve(request);
  ASSERT_TRUE(sequential.best);
  EXPECT_EQ(sequential.best->plan.strategy.kind, StrategyKind::kSequential);
  request.options = PlanOptions();
  request.options.split_backward = false;
  request.options.max_loops = 1;
  request.options.micro_batch = 1;
  const PlanResponse plain = Solve(request);
  ASSERT_TRUE(plain.best);
  std::vector<int> loops(4, 0);
  for (const Stage& stage : plain.best->plan.strategy.stages) {
    EXPECT_EQ(stage.micro_batch, 1);
    for (DeviceId d : stage.devices) EXPECT_EQ(++loops[d.index()], 1);
  }
  for (const DeviceOrder& order : plain.best->plan.strategy.orders) {
    for (const ComputeStep& step : order.steps) {
      EXPECT_NE(step.pass, Pass::kBackwardInput);
      EXPECT_NE(step.pass, Pass::kBackwardWeight);
    }
  }
}

TEST(AutoTest, StreamsImprovementsEachFasterThanTheOneBefore) {
  const Graph graph = Branches();
  const Cluster cluster = *UniformPreset("uniform:4");
  SearchContext context;
  std::vector<Nanos> times;
  const auto response = SolvePlan(
      RequestFor(graph, cluster, 4), context,
      [&](const JudgedPlan& judged) { times.push_back(judged.evaluation.iteration_time); });
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_GE(times.size(), 3u);
  for (size_t i = 1; i < times.size(); ++i) EXPECT_LT(times[i], times[i - 1]);
  EXPECT_EQ(times.back(), response->best->evaluation.iteration_time);
}

// Counted, so that it says the same on all machines: the first second of five.
TEST(AutoTest, GraphsOfStagesComeBeforeTheSlowMembers) {
  const Graph graph = *ReadGraphFile(testing::SourcePath("examples/graphs/dlrm.swg"));
  const Cluster cluster = *ClusterPreset("summit:8");
  const PlanRequest request = RequestFor(graph, cluster, 2048);
  SearchContext context;
  Nanos early(0);
  const auto response = SolvePlan(request, context, [&](const JudgedPlan& plan) {
    if (context.work() <= kMostWork / 4) early = plan.evaluation.iteration_time;
  });
  ASSERT_TRUE(response.ok() && response->best) << response.status();
  EXPECT_LE(ToSeconds(early), 1.15 * ToSeconds(response->best->evaluation.iteration_time));
}

// Where one schedule of a chain takes long, graphs have their part of the work all the same; and
// branches may have single devices. Operators are cut here, so that several searches share the
// work.
TEST(AutoTest, WideModelsOnManyDevicesArePlannedAsGraphs) {
  struct Case {
    Graph graph;
    int64_t mini_batch;
    double above_bound;
  };
  std::vector<Case> cases;
  cases.push_back({testing::CandleGraph(64, 4), 1024, 1.05});
  cases.push_back({testing::DlrmGraph(32, 32), 4096, 1.8});
  const Cluster cluster = *UniformPreset("uniform:128");
  for (const Case& one : cases) {
    SearchContext context;
    const auto response = SolvePlan(RequestFor(one.graph, cluster, one.mini_batch), context);
    ASSERT_TRUE(response.ok() && response->best) << response.status();
    EXPECT_LE(ToSeconds(response->best->evaluation.iteration_time),
              one.above_bound * ToSeconds(response->lower_bound));
  }
}

TEST(AutoTest, ADeadlineStillLeavesTheMembersAnswer) {
  const Graph graph = Branches();
  const Cluster cluster = *UniformPreset("uniform:4");
  // Much less than the whole search takes, and doubled for machines on which that is not enough for
  // any member.
  absl::StatusOr<PlanResponse> response;
  for (int ms = 150; ms <= 4800 && !(response.ok() && response->best); ms *= 2) {
    SearchContext context(SearchContext::Clock::now() + std::chrono::milliseconds(ms));
    response = SolvePlan(RequestFor(graph, cluster, 64), context);
    ASSERT_TRUE(response.ok()) << response.status();
  }
  EXPECT_TRUE(response->best);
}

// What is found follows from the problem, however slow the machine is: with processors that others
// keep busy, and with one that stands still whenever something was found.
TEST(AutoTest, SlownessChangesNothing) {
  const Graph graph = testing::MmtGraph(4, 4);
  const Cluster cluster = *UniformPreset("uniform:8,bandwidth=12e9");
  const PlanRequest request = RequestFor(graph, cluster, 64);
  const PlanResponse quick = Solve(request);
  ASSERT_TRUE(quick.best) << quick.reason;

  std::atomic<bool> done{false};
  std::vector<std::thread> busy;
  for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency(); ++i) {
    busy.emplace_back([&] {
      while (!done.load(std::memory_order_relaxed)) {
      }
    });
  }
  SearchContext context;
  const auto slow = SolvePlan(request, context, [](const JudgedPlan&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
  });
  done = true;
  for (std::thread& thread : busy) thread.join();

  ASSERT_TRUE(slow.ok() && slow->best) << slow.status();
  EXPECT_EQ(ToText(slow->best->plan.program), ToText(quick.best->plan.program));
  EXPECT_EQ(slow->best->plan.fingerprint, quick.best->plan.fingerprint);
  EXPECT_EQ(slow->termination, quick.termination);
  EXPECT_EQ(slow->states, quick.states);
  EXPECT_EQ(slow->candidates, quick.candidates);
}

TEST(AutoTest, MoreEffortSearchesMore) {
  const Graph graph = testing::MmtGraph(2, 4);
  const Cluster cluster = *UniformPreset("uniform:4,bandwidth=12e9");
  PlanRequest request = RequestFor(graph, cluster, 16);
  const PlanResponse once = Solve(request);
  request.options.effort = 4;
  const PlanResponse more = Solve(request);
  ASSERT_TRUE(once.best && more.best);
  EXPECT_GT(more.states, once.states + once.states / 2);
}

TEST(AutoTest, ADeadlineThatCutsInIsALimitAndAWarning) {
  const Graph graph = Branches();
  const Cluster cluster = *UniformPreset("uniform:4");
  // Long enough for a first plan, which takes a slow machine longer, and not for all of the search.
  absl::StatusOr<PlanResponse> cut;
  for (int ms = 60; ms <= 3840 && !(cut.ok() && cut->best); ms *= 2) {
    SearchContext context(SearchContext::Clock::now() + std::chrono::milliseconds(ms));
    cut = SolvePlan(RequestFor(graph, cluster, 64), context);
  }
  ASSERT_TRUE(cut.ok() && cut->best) << cut.status();
  EXPECT_EQ(cut->termination, Termination::kLimit);
  EXPECT_THAT(cut->warnings, Contains(HasSubstr("ended early")));
  const PlanResponse whole = Solve(RequestFor(graph, cluster, 8));
  EXPECT_NE(whole.termination, Termination::kLimit);
  EXPECT_THAT(whole.warnings, Not(Contains(HasSubstr("ended early"))));
}

TEST(AutoTest, AsynchronousPipelinesAreNoSlowerThanThoseOfMembers) {
  Rng random(52);
  int warned = 0;
  for (int i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    const Graph graph = testing::RandomProfile(random, 12);
    const Cluster cluster = testing::RandomCluster(random, 4);
    PlanRequest request = RequestFor(graph, cluster, 12);
    const PlanResponse synchronous = Solve(request);
    request.options.asynchronous = true;
    const PlanResponse best = Solve(request);
    for (const char* member : {"single", "data-parallel", "pipedream"}) {
      request.planner = member;
      const PlanResponse other = Solve(request);
      if (!other.best) continue;
      ASSERT_TRUE(best.best) << best.reason;
      EXPECT_TRUE(best.best->plan.strategy.asynchronous);
      EXPECT_LE(best.best->evaluation.iteration_time, other.best->evaluation.iteration_time)
          << member;
    }
    if (!best.best || !synchronous.best) continue;
    // It looked at fewer synchronous plans than who looks for nothing else.
    if (std::none_of(best.warnings.begin(), best.warnings.end(), [](const auto& text) {
          return text.find("a synchronous plan is faster") != std::string::npos;
        }))
      continue;
    ++warned;
    EXPECT_LT(synchronous.best->evaluation.iteration_time, best.best->evaluation.iteration_time);
  }
  EXPECT_GT(warned, 0);
}

TEST(AutoTest, EveryStageRecomputesIfAsked) {
  Rng random(53);
  for (int i = 0; i < 2; ++i) {
    SCOPED_TRACE(i);
    const Graph graph = testing::RandomProfile(random, 14);
    const Cluster cluster = testing::FlatCluster(4, kGiB * kMiB.count());
    PlanRequest request = RequestFor(graph, cluster, 4);
    request.options.recompute = RecomputePolicy::kAlways;
    const PlanResponse always = Solve(request);
    ASSERT_TRUE(always.best) << always.reason;
    for (const Stage& stage : always.best->plan.strategy.stages) EXPECT_TRUE(stage.recompute);
  }
}

// The plan for a cluster, and what the plan made for `told` takes on it.
void ExpectBetterThanTold(const Graph& graph, const Cluster& cluster, const Cluster& told,
                          const CostModel& costs) {
  PlanRequest request = RequestFor(graph, cluster, 8);
  request.costs = &costs;
  const PlanResponse aware = Solve(request);
  request.cluster = &told;
  const PlanResponse blind = Solve(request);
  ASSERT_TRUE(aware.best && blind.best);
  request.cluster = &cluster;
  const auto judged = JudgeStrategy(request, blind.best->plan.strategy, "told");
  ASSERT_TRUE(judged.ok()) << judged.status();
  EXPECT_LT(1.05 * static_cast<double>(aware.best->evaluation.iteration_time),
            static_cast<double>(judged->evaluation.iteration_time));
}

TEST(AutoTest, TwoKindsOfDeviceGetTheirShares) {
  ClusterData data = UniformPreset("uniform:4")->data();
  data.kinds[0].flops_per_second = 1e12;
  data.kinds.push_back(data.kinds[0]);
  data.kinds[1].name = "slow";
  data.kinds[1].flops_per_second = 0.4e12;
  const Cluster equal = *Cluster::Create(data);
  data.devices[1].kind = data.devices[2].kind = 1;
  const Cluster mixed = *Cluster::Create(data);
  for (const Graph& graph :
       {Branches(), ProfiledChain(16, {kMillisecond, 2 * kMillisecond, kMiB, kMiB, {}})}) {
    const RatedProfileCosts costs(graph);
    ExpectBetterThanTold(graph, mixed, equal, costs);
  }
}

TEST(AutoTest, ASlowLinkIsCrossedRarely) {
  // Devices 0 and 2 are near each other, and so are 1 and 3; messages between the pairs are slow.
  ClusterData data = UniformPreset("uniform:4")->data();
  const Cluster equal = *Cluster::Create(data);
  for (int32_t a = 0; a < 4; ++a) {
    for (int32_t b = 0; b < 4; ++b) {
      if (a % 2 == b % 2) continue;
      for (int32_t link : data.routes[a * 4 + b]) data.links[link].bytes_per_second = 1e8;
    }
  }
  const Cluster split = *Cluster::Create(data);
  const Graph graph = ProfiledChain(16, {kMillisecond, 2 * kMillisecond, kMiB, kMiB, {}});
  ExpectBetterThanTold(graph, split, equal, *MakeAnalyticCostModel(graph));
}

}  // namespace
}  // namespace stagewright
