#include "planner_service/models/list_schedule/list_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "common/strategy/orders.h"
#include "common/topology/uniform.h"
#include "planner_service/evaluator/evaluator.h"
#include "planner_service/search/local_search.h"
#include "tests/planner_service/models/list_schedule/random_task_graphs.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/search_case.h"
#include "tests/support/small_problems.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::ProfiledChain;
using testing::Rng;
using testing::SearchCase;
using testing::Work;

Cluster Uniform(const std::string& text) { return *UniformPreset("uniform:" + text); }

// One operator per stage, stage i on device i modulo the cluster's size.
Draft OnePerStage(const Problem& problem) {
  Draft draft;
  for (int32_t op = 0; op < problem.operators->size(); ++op) {
    draft.stages.push_back({{op}, {op % problem.cluster->size()}, false});
  }
  return draft;
}

absl::StatusOr<Evaluation> Simulated(const Problem& problem, const Draft& draft,
                                     std::vector<DeviceOrder> orders, ReceivePosting posting = {}) {
  Strategy strategy = ToStrategy(problem, draft);
  SetOrders(*problem.graph, std::move(orders), strategy);
  EvaluateOptions options;
  options.optimizer = problem.optimizer;
  options.posting = posting;
  return Evaluate(*problem.graph, *problem.cluster, *problem.costs, strategy, options);
}

TEST(ListScheduleTest, AChainOfEqualStagesTakesWhatOneFOneBTakes) {
  // No messages: (M + S - 1) times forward and backward.
  const SearchCase c(ProfiledChain(3, {1000, 2000, 0, 0, {}}), Uniform("3,latency=0"), 6);
  const OperatorCosts costs(c.problem);
  const Draft draft = OnePerStage(c.problem);
  const TaskGraph graph = MakeTaskGraph(costs, draft, 1);
  ListScheduler scheduler;
  const ListResult result = scheduler.Run(graph, {ListRule::Due::kTail, 1, 1, false, 0, 0}, true);
  EXPECT_TRUE(result.fits);
  EXPECT_EQ(result.step_time, (6 + 3 - 1) * 3000);
  const auto evaluation = Simulated(c.problem, draft, result.orders);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_EQ(evaluation->iteration_time, result.step_time);
}

TEST(ListScheduleTest, SplitBackwardPassesFillTheBubble) {
  const SearchCase c(ProfiledChain(4, {1000, 2000, 0, kKiB, {}}), Uniform("4,latency=0"), 8);
  const OperatorCosts costs(c.problem);
  const Draft draft = OnePerStage(c.problem);
  const TaskGraph graph = MakeTaskGraph(costs, draft, 1);
  ListScheduler scheduler;
  const ListResult whole = scheduler.Run(graph, {ListRule::Due::kTail, 1, 1, false, 0, 0}, true);
  const ListResult split = scheduler.Run(graph, {ListRule::Due::kTail, 1, 1, true, 0, 2}, true);
  EXPECT_EQ(whole.step_time, (8 + 4 - 1) * 3000);
  // Work of one device and one forward pass for each stage before it.
  EXPECT_LE(split.step_time, (8 + 2) * 3000);
  const auto evaluation = Simulated(c.problem, draft, split.orders);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_EQ(evaluation->iteration_time, split.step_time);
}

// Three replicas share four samples, one of them on a slower device.
TEST(ListScheduleTest, ReplicasOfOtherSharesAndKindsHaveTheirOwnTimes) {
  ClusterData data = Uniform("3").data();
  data.kinds[0].flops_per_second = 1e12;
  data.kinds.push_back(data.kinds[0]);
  data.kinds[1].name = "slow";
  data.kinds[1].flops_per_second = 0.25e12;
  data.devices[1].kind = 1;
  SearchCase c(ProfiledChain(3, {1000, 2000, kKiB, kKiB, {}}), *Cluster::Create(data), 8);
  const testing::RatedProfileCosts rated(c.graph);
  c.problem.costs = &rated;
  const OperatorCosts costs(c.problem);
  Draft draft;
  draft.micro_batch = 4;
  draft.stages = {{{0, 1, 2}, {0, 1, 2}, false}};
  const TaskGraph graph = MakeTaskGraph(costs, draft, 1);
  ASSERT_EQ(graph.units.size(), 3u);
  std::set<Nanos> times;
  for (const TaskGraph::Unit& unit : graph.units) {
    const int32_t kind = data.devices[unit.device].kind;
    const ShareTable& share = costs.Share(ReplicaShare({0, 4}, unit.replica, 3).size());
    OperatorTime time;
    Bytes saved = 0;
    for (int32_t op = 0; op < 3; ++op) {
      time += share.time[kind][op];
      saved += share.saved[op];
    }
    EXPECT_EQ(unit.forward, time.forward + data.kinds[kind].pass_overhead);
    EXPECT_EQ(unit.backward, time.backward + data.kinds[kind].pass_overhead);
    EXPECT_EQ(unit.kept, saved);
    times.insert(unit.forward);
  }
  EXPECT_EQ(times.size(), 3u);
}

TEST(ListScheduleTest, FollowsTheRuleOfPosting) {
  // A message takes as long as a forward pass.
  const SearchCase c(ProfiledChain(4, {100000, 200000, 100000, 0, {}}),
                     Uniform("4,latency=0,bandwidth=1e9"), 16);
  const OperatorCosts costs(c.problem);
  for (bool recompute : {false, true}) {
    Draft draft = OnePerStage(c.problem);
    for (DraftStage& stage : draft.stages) stage.recompute = recompute;
    const TaskGraph graph = MakeTaskGraph(costs, draft, 1);
    std::vector<Nanos> times;
    for (int32_t ahead : {1, 2, 4, 6}) {
      ListScheduler scheduler(ReceivePosting{ahead});
      const ListResult result =
          scheduler.Run(graph, {ListRule::Due::kTail, 1, 1, false, 0, 0}, true);
      times.push_back(result.step_time);
      const auto evaluation = Simulated(c.problem, draft, result.orders, {ahead});
      ASSERT_TRUE(evaluation.ok()) << evaluation.status();
      EXPECT_NEAR(static_cast<double>(result.step_time),
                  static_cast<double>(evaluation->iteration_time),
                  0.02 * static_cast<double>(evaluation->iteration_time))
          << ahead;
    }
    EXPECT_GT(static_cast<double>(times.front()), 1.1 * static_cast<double>(times.back()));
  }
}

TEST(ListScheduleTest, MessagesOfOnePassShareItsLinks) {
  // Two stages read from one, the first of them for longer: it waits for both messages to be there.
  std::vector<Work> nodes(3, {100000, 200000, 100000, 0, {}});
  nodes[1] = {400000, 800000, 0, 0, {0}};
  nodes[2] = {100000, 200000, 0, 0, {0}};
  const SearchCase c(testing::ProfiledGraph(nodes), testing::FlatCluster(3), 1);
  const OperatorCosts costs(c.problem);
  Draft draft = OnePerStage(c.problem);
  ASSERT_TRUE(SortStages(c.operators.dag(), draft));
  const TaskGraph graph = MakeTaskGraph(costs, draft, 1);
  ListScheduler scheduler;
  const ListResult result = scheduler.Run(graph, {ListRule::Due::kTail, 1, 1, false, 0, 0}, true);
  const auto evaluation = Simulated(c.problem, draft, result.orders);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_EQ(result.step_time, evaluation->iteration_time);
  EXPECT_EQ(result.step_time, 100000 + 2 * 100000 + 400000 + 800000 + 100000 + 200000);
}

TEST(ListScheduleTest, AShortStageThatAllWaitForGoesFirst) {
  // Three branches of equal length on a device each; the join is on the first of them.
  std::vector<Work> nodes(4, {9000, 18000, 0, 0, {}});
  nodes[3] = {300, 600, 0, 0, {0, 1, 2}};
  const SearchCase c(testing::ProfiledGraph(nodes), Uniform("3,latency=0"), 4);
  const OperatorCosts costs(c.problem);
  Draft draft = OnePerStage(c.problem);
  ASSERT_TRUE(SortStages(c.operators.dag(), draft));
  const TaskGraph graph = MakeTaskGraph(costs, draft, 1);
  ListScheduler scheduler;
  const ListResult result = scheduler.Run(graph, {ListRule::Due::kTurn, 0, 1, false, 0, 0}, false);
  EXPECT_EQ(result.step_time, 4 * (27000 + 900));  // The first device is never idle.
}

TEST(ListScheduleTest, MemoryLimitsWhatIsInFlight) {
  SearchCase c(ProfiledChain(4, {1000, 2000, kMiB, 0, {}}), Uniform("4,memory=9MiB,latency=0"), 16);
  const OperatorCosts costs(c.problem);
  const Draft draft = OnePerStage(c.problem);
  ListScheduler scheduler;
  const ListRule rule{ListRule::Due::kTail, 0, 1, false, 0, 0};
  const ListResult tight = scheduler.Run(MakeTaskGraph(costs, draft, 1), rule, true);
  ASSERT_TRUE(tight.fits);
  const auto evaluation = Simulated(c.problem, draft, tight.orders);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_FALSE(scheduler.Run(MakeTaskGraph(costs, draft, 0.2), rule, false).fits);
}

// Calls `check` with the task graphs of so many random drafts.
template <typename Check>
void ForRandomDrafts(Rng& random, int drafts, Check check) {
  for (int i = 0; i < drafts; ++i) {
    SCOPED_TRACE(i);
    const auto devices = static_cast<int32_t>(testing::Uniform(random, 1, 5));
    const SearchCase c(
        testing::RandomProfile(random, static_cast<int32_t>(testing::Uniform(random, 2, 14))),
        Uniform(std::to_string(devices) + ",bandwidth=1e10"), 8);
    const OperatorCosts costs(c.problem);
    const Strategy strategy =
        testing::RandomStrategy(random, c.graph, c.operators, c.cluster, c.problem.mini_batch);
    std::optional<Draft> draft = ToDraft(c.problem, strategy);
    if (!draft.has_value()) continue;
    ASSERT_TRUE(SortStages(c.operators.dag(), *draft));
    const TaskGraph graph = MakeTaskGraph(costs, *draft, 1);
    check(c.problem, *draft, graph);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(ListScheduleTest, TheSimulatorAcceptsEveryScheduleAndAgreesOnItsTime) {
  Rng random(7);
  int compared = 0;
  ForRandomDrafts(random, 150,
                  [&](const Problem& problem, const Draft& draft, const TaskGraph& graph) {
                    ListScheduler scheduler;
                    for (ListRule rule : ListRules(/*split_backward=*/true)) {
                      rule.rounds = static_cast<int32_t>(testing::Uniform(random, 0, 2));
                      const ListResult result = scheduler.Run(graph, rule, true);
                      ASSERT_TRUE(result.fits);
                      const auto evaluation = Simulated(problem, draft, result.orders);
                      ASSERT_TRUE(evaluation.ok()) << evaluation.status();
                      // Where messages meet on a link, it carries one at a time here and all at
                      // once there.
                      EXPECT_NEAR(static_cast<double>(result.step_time),
                                  static_cast<double>(evaluation->iteration_time),
                                  0.05 * static_cast<double>(evaluation->iteration_time));
                      ++compared;
                    }
                  });
  EXPECT_GT(compared, 500);
}

// With a limit that the schedule meets nothing changes; below, it is given up with a bound that is
// above the limit and no more than its whole time.
TEST(ListScheduleTest, ALimitEndsOnlySchedulesThatExceedIt) {
  Rng random(8);
  int given_up = 0, early = 0;
  testing::ForRandomTaskGraphs(random, [&](const TaskGraph& graph) {
    ListScheduler scheduler;
    for (const ListRule& rule : ListRules(/*split_backward=*/true)) {
      const ListResult whole = scheduler.Run(graph, rule, true);
      if (!whole.fits) return;
      const ListResult met = scheduler.Run(graph, rule, true, whole.step_time);
      ASSERT_EQ(met.step_time, whole.step_time);
      ASSERT_EQ(met.orders, whole.orders);
      const Nanos limit = whole.step_time * testing::Uniform(random, 10, 99) / 100;
      const ListResult cut = scheduler.Run(graph, rule, true, limit);
      ASSERT_GT(cut.step_time, limit);
      ASSERT_LE(cut.step_time, whole.step_time);
      ++given_up;
      if (cut.work < whole.work) ++early;
    }
  });
  EXPECT_GT(given_up, 10'000);
  EXPECT_GT(early, 9'000);
}

}  // namespace
}  // namespace stagewright
