// What every planner owes its caller, whatever the problem looks like. A planner joins by its line
// in the table of planners.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/cost/parameters.h"
#include "tests/conformance/planner_suite.h"
#include "tests/support/clusters.h"
#include "tests/support/model_graphs.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using ::testing::HasSubstr;
using testing::ProfiledChain;
using testing::ProfiledGraph;
using testing::Rng;
using testing::Work;

class PlannerConformanceTest : public PlannerSuite {
 protected:
  static void ExpectEqual(const PlanResponse& first, const PlanResponse& second) {
    EXPECT_EQ(first.termination, second.termination);
    EXPECT_EQ(first.reason, second.reason);
    EXPECT_EQ(first.states, second.states);
    EXPECT_EQ(first.candidates, second.candidates);
    ASSERT_EQ(first.best.has_value(), second.best.has_value());
    if (!first.best) return;
    EXPECT_EQ(first.best->plan.fingerprint, second.best->plan.fingerprint);
  }

  void ExpectEqualAnswers(int problems) const {
    Rng random(41);
    for (int i = 0; i < problems; ++i) {
      SCOPED_TRACE(i);
      const Graph graph = testing::RandomNetwork(random, 16);
      const Cluster cluster = testing::RandomCluster(random, 8);
      const PlanRequest request = Request(graph, cluster, 16);
      ExpectEqual(Solve(request), Solve(request));
    }
  }
};

constexpr Work kSmall = {1000, 2000, kKiB, kKiB, {}};

// `chains` chains of `length` nodes, joined at the end if asked for.
Graph Chains(int32_t chains, int32_t length, bool joined, Work each = kSmall) {
  std::vector<Work> nodes;
  Work join = each;
  for (int32_t c = 0; c < chains; ++c) {
    for (int32_t i = 0; i < length; ++i) {
      nodes.push_back(each);
      const auto index = static_cast<int32_t>(nodes.size()) - 1;
      if (i > 0) nodes.back().after = {index - 1};
      if (i == length - 1) join.after.push_back(index);
    }
  }
  if (joined) nodes.push_back(join);
  return ProfiledGraph(nodes);
}

// Two kinds of device, the second twice as fast and with half the memory, on two nodes.
Cluster MixedCluster() {
  HierarchicalSpec spec;
  spec.name = "mixed";
  spec.nodes = 2;
  spec.devices_per_node = 2;
  spec.kind = FlatCluster(1).kinds()[0];
  spec.memory = 16 * kGiB;
  spec.inside = {"port", kMicrosecond, 1e11};
  spec.outside = {"uplink", 20 * kMicrosecond, 1e9};
  ClusterData data = MakeHierarchical(spec).value().data();
  data.kinds.push_back(data.kinds[0]);
  data.kinds[1].name = "fast";
  data.kinds[1].flops_per_second *= 2;
  data.kinds[1].memory_bytes_per_second *= 2;
  for (size_t d = 1; d < data.devices.size(); d += 2) {
    data.devices[d].kind = 1;
    data.devices[d].memory /= 2;
  }
  return Cluster::Create(std::move(data)).value();
}

TEST_P(PlannerConformanceTest, HasItsRegisteredName) {
  const auto planner = GetParam().make();
  EXPECT_EQ(planner->name(), GetParam().name);
  EXPECT_FALSE(planner->description().empty());
  EXPECT_THAT(planner->description(), Not(HasSubstr("\n")));
}

TEST_P(PlannerConformanceTest, EqualProblemsHaveEqualAnswers) { ExpectEqualAnswers(4); }

TEST_P(PlannerConformanceTest, LongEqualProblemsHaveEqualAnswers) { ExpectEqualAnswers(10); }

// Each improvement beats the one before, and the answer is no worse than the last.
TEST_P(PlannerConformanceTest, ImprovementsLeadToTheAnswer) {
  Rng random(46);
  for (int i = 0; i < 5; ++i) {
    SCOPED_TRACE(i);
    const Graph graph = testing::RandomProfile(random, 20);
    const Cluster cluster = FlatCluster(4);
    Nanos last = 0;
    SearchContext context;
    const auto response = Ask(Request(graph, cluster, 8), context, [&](const JudgedPlan& plan) {
      EXPECT_TRUE(last == 0 || plan.evaluation.iteration_time < last);
      last = plan.evaluation.iteration_time;
    });
    ASSERT_TRUE(response.ok()) << response.status();
    ASSERT_TRUE(response->best) << response->reason;
    EXPECT_TRUE(last == 0 || response->best->evaluation.iteration_time <= last);
  }
}

TEST_P(PlannerConformanceTest, OneOperator) {
  const Graph graph = ProfiledChain(1, kSmall);
  const PlanResponse response = MustPlan(graph, FlatCluster(4), 8);
  ASSERT_TRUE(response.best);
  EXPECT_EQ(response.best->plan.strategy.stages.size(), 1u);
}

TEST_P(PlannerConformanceTest, OneDeviceAndOneSample) {
  const Graph graph = ProfiledChain(5, kSmall);
  for (int64_t mini_batch : {1, 7}) {
    const PlanResponse response = MustPlan(graph, FlatCluster(1), mini_batch);
    ASSERT_TRUE(response.best);
    EXPECT_EQ(response.best->evaluation.devices.size(), 1u);
  }
}

TEST_P(PlannerConformanceTest, MoreDevicesThanUseful) {
  MustPlan(ProfiledChain(2, kSmall), FlatCluster(48), 3);
  MustPlan(ProfiledChain(1, kSmall), FlatCluster(300), 1);
}

TEST_P(PlannerConformanceTest, OperatorsWithoutCost) {
  MustPlan(ProfiledChain(12, {}), FlatCluster(4), 8);
  std::vector<Work> some(12);
  for (int32_t v = 1; v < 12; ++v) some[v].after = {v - 1};
  some[5].forward = some[5].backward = kMillisecond;
  MustPlan(ProfiledGraph(some), FlatCluster(4), 8);
}

TEST_P(PlannerConformanceTest, DisconnectedGraphs) {
  // Two chains and a lone operator.
  std::vector<Work> nodes(9, kSmall);
  for (int32_t v : {1, 2, 3}) nodes[v].after = {v - 1};
  for (int32_t v : {5, 6, 7}) nodes[v].after = {v - 1};
  MustPlan(ProfiledGraph(nodes), FlatCluster(4), 16);
  MustPlan(Chains(7, 1, false), FlatCluster(3), 16);  // No edge at all.
}

TEST_P(PlannerConformanceTest, HugeWeightsAreInfeasibleWithAReason) {
  const Graph graph = ProfiledChain(4, {1000, 2000, kKiB, 3 * kGiB, {}});
  const Cluster cluster = FlatCluster(4, 8 * kGiB);
  PlanRequest request = Request(graph, cluster, 8);
  // 48 GiB for parameters, gradients and Adam: more than four devices of 8 GiB have.
  const PlanResponse total = Solve(request);
  EXPECT_EQ(total.termination, Termination::kInfeasible);
  EXPECT_THAT(total.reason, AllOf(HasSubstr("too much"), HasSubstr("GiB")));
  // 24 GiB for plain SGD fit on four devices but not on one: the planner itself must see to it.
  request.optimizer = Optimizer::kSgd;
  const PlanResponse tight = Solve(request);
  if (tight.best) {
    EXPECT_EQ(tight.best->plan.strategy.stages.size(), 4u);
  } else {
    EXPECT_EQ(tight.termination,
              MayMissWhatFits() ? Termination::kLimit : Termination::kInfeasible);
    EXPECT_THAT(tight.reason, HasSubstr("GiB"));
  }
}

// Activations of a single sample exceed every device: no micro-batch and no cut helps.
TEST_P(PlannerConformanceTest, HugeActivationsAreInfeasibleWithAReason) {
  std::vector<Work> nodes(4, kSmall);
  for (int32_t v = 1; v < 4; ++v) nodes[v].after = {v - 1};
  nodes[1].activation_bytes = 10 * kGiB;
  const PlanResponse response = Solve(Request(ProfiledGraph(nodes), FlatCluster(4, 8 * kGiB), 8));
  EXPECT_FALSE(response.best);
  EXPECT_EQ(response.termination, Termination::kInfeasible);
  EXPECT_THAT(response.reason, AllOf(HasSubstr("GiB"), HasSubstr("n1")));
}

// Micro-batches must be small enough for what a device can hold.
TEST_P(PlannerConformanceTest, MemoryIsRespected) {
  const Graph graph = ProfiledChain(8, {kMillisecond, 2 * kMillisecond, 64 * kMiB, kMiB, {}});
  for (Bytes memory : {kGiB, 2 * kGiB, 16 * kGiB}) {
    // The whole mini-batch in flight is what GPipe is; 32 inputs of a stage alone are 2 GiB.
    if (memory <= 2 * kGiB && std::string(GetParam().name) == "gpipe") continue;
    SCOPED_TRACE(memory);
    MustPlan(graph, FlatCluster(4, memory, 0, 1e11), 32);
  }
}

TEST_P(PlannerConformanceTest, DifferentDevicesAndLinks) {
  const Cluster mixed = MixedCluster();
  MustPlan(ProfiledChain(9, {kMillisecond, 2 * kMillisecond, kMiB, kMiB, {}}), mixed, 16);
  MustPlan(Chains(3, 4, true, {kMillisecond, kMillisecond, kMiB, kMiB, {}}), mixed, 16);
  Rng random(47);
  for (int i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    MustPlan(testing::RandomNetwork(random, 12), mixed, 12);
  }
  for (int i = 0; i < 8; ++i) {
    SCOPED_TRACE(i);
    const Cluster cluster = testing::RandomCluster(random, 8);
    const Graph graph = testing::RandomNetwork(random, 12);
    Solve(Request(graph, cluster, 12));
  }
}

// Graphs that have costs and no arguments, shapes far from series-parallel among them.
TEST_P(PlannerConformanceTest, PlanningOnlyGraphs) {
  Rng random(48);
  for (int i = 0; i < 8; ++i) {
    SCOPED_TRACE(i);
    const Graph graph = testing::RandomProfile(random, static_cast<int32_t>(4 + 3 * i));
    const Cluster cluster = testing::RandomCluster(random, 6);
    Solve(Request(graph, cluster, 8));
  }
}

TEST_P(PlannerConformanceTest, NetworksOfThePapers) {
  const Graph graphs[] = {testing::MmtGraph(3, 2), testing::DlrmGraph(3, 3),
                          testing::CandleGraph(3, 2), testing::UnevenChain(25)};
  const Cluster cluster = FlatCluster(4, 64 * kGiB, 20 * kMicrosecond, 12.5e9);
  for (const Graph& graph : graphs) MustPlan(graph, cluster, 16);
}

// Frozen operators have no backward pass.
TEST_P(PlannerConformanceTest, FrozenBranches) {
  Rng random(49);
  const Graph trained = testing::RandomNetwork(random, 14);
  GraphData data = trained.data();
  for (size_t p = 0; p < data.parameters.size(); ++p) data.parameters[p].trainable = p == 0;
  MustPlan(Graph::Create(data).value(), FlatCluster(3), 8);
  for (Parameter& parameter : data.parameters) parameter.trainable = false;
  MustPlan(Graph::Create(data).value(), FlatCluster(3), 8);
}

INSTANTIATE_TEST_SUITE_P(All, PlannerConformanceTest, ::testing::ValuesIn(PlannersUnderTest()),
                         SuiteName);

}  // namespace
}  // namespace stagewright
