#include "common/cost/cost_table.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/cost/analytic.h"
#include "common/cost/node_weights.h"
#include "common/cost/value_bytes.h"
#include "common/topology/presets.h"
#include "tests/support/graph_builder.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright {
namespace {

using testing::GraphBuilder;
using testing::NodeOf;
using testing::Rng;
using testing::Uniform;

// Sums over the operators of a stage, or what the stage really has.
struct Sums {
  OperatorTime time;
  Bytes saved = 0;
  HeldBytes held;
};

// Nodes, replicated nodes and parameters once each, as the simulator and the memory model count.
Sums TruthOf(const Graph& graph, const OperatorGraph& operators, const CostModel& costs,
             const DeviceKind& kind, const std::vector<int32_t>& stage, int64_t samples) {
  std::vector<NodeId> nodes;
  for (int32_t op : stage) {
    const auto& own = operators.op(OperatorId(op)).nodes;
    nodes.insert(nodes.end(), own.begin(), own.end());
  }
  Sums sums;
  for (NodeId node : nodes) {
    sums.time += costs.Time(node, kind, samples);
    sums.saved += costs.SavedBytes(node, samples);
  }
  for (NodeId node : ReplicatedInto(graph, operators, nodes)) {
    sums.time.forward += costs.Time(node, kind, samples).forward;
    sums.saved += costs.SavedBytes(node, samples);
  }
  for (ParameterId id : ParametersOf(graph, nodes)) {
    sums.held += BytesHeld(graph.parameter(id), Optimizer::kAdam);
  }
  return sums;
}

Sums SumOf(const CostTable& table, const std::vector<int32_t>& stage, int64_t samples,
           CostView view) {
  const ShareTable& share = table.Share(samples, view);
  Sums sums;
  for (int32_t op : stage) {
    sums.time += share.time[0][op];
    sums.saved += share.saved[op];
    sums.held += view == CostView::kLeast ? table.held(op).least : table.held(op).planned;
  }
  return sums;
}

void ExpectAtMost(const Sums& a, const Sums& b) {
  EXPECT_LE(a.time.forward, b.time.forward);
  EXPECT_LE(a.time.backward, b.time.backward);
  EXPECT_LE(a.saved, b.saved);
  EXPECT_LE(a.held.resident, b.held.resident);
  EXPECT_LE(a.held.gradients, b.held.gradients);
  EXPECT_LE(a.held.trained, b.held.trained);
}

TEST(CostTableTest, AStageLiesBetweenTheSumsOfBothViews) {
  Rng rng(7);
  const Cluster cluster = *ClusterPreset("summit:1");
  int64_t between = 0;
  for (int round = 0; round < 200; ++round) {
    const Graph graph = testing::RandomGraph(rng, static_cast<int32_t>(Uniform(rng, 4, 40)));
    const auto costs = MakeAnalyticCostModel(graph);
    const DeviceKind& kind = cluster.kinds()[0];
    const auto weights = NodeWeights(graph, *costs, kind, 8);
    const OperatorGraph operators = *Coarsen(graph, weights);
    const CostTable table(graph, operators, cluster, *costs, Optimizer::kAdam);
    std::vector<int32_t> stage;
    for (int32_t op = 0; op < operators.size(); ++op) {
      if (Uniform(rng, 0, 1) == 0) stage.push_back(op);
    }
    const int64_t samples = Uniform(rng, 1, 8);
    const Sums truth = TruthOf(graph, operators, *costs, kind, stage, samples);
    const Sums least = SumOf(table, stage, samples, CostView::kLeast);
    ExpectAtMost(least, truth);
    ExpectAtMost(truth, SumOf(table, stage, samples, CostView::kPlanned));
    if (least.time.forward < truth.time.forward) ++between;
  }
  EXPECT_GT(between, 5);
}

TEST(CostTableTest, ASharedParameterIsHeldByEveryUserOrByNone) {
  GraphBuilder builder("tied");
  const Argument x = builder.Feature("x", {8});
  const Argument w = builder.Weight("w", {8, 8});
  const Argument v = builder.Weight("v", {8, 8});
  const Argument a = builder.Add("aten.linear.default", {x, v}, {8});
  const Argument b = builder.Add("aten.linear.default", {a, w}, {8});
  builder.Add("aten.linear.default", {b, w}, {8});
  const Graph graph = builder.Build();
  const OperatorGraph operators = *OneOperatorPerNode(graph);
  const Cluster cluster = *ClusterPreset("summit:1");
  const auto costs = MakeAnalyticCostModel(graph);
  const CostTable table(graph, operators, cluster, *costs, Optimizer::kSgd);
  const Bytes bytes = 8 * 8 * 4;
  EXPECT_EQ(table.held(0).planned.resident, 2 * bytes);
  EXPECT_EQ(table.held(0).least.resident, bytes);  // No gradient while all is saved.
  EXPECT_EQ(table.held(0).least.gradients, bytes);
  for (int32_t op : {1, 2}) {
    EXPECT_EQ(table.held(op).planned.gradients, bytes);
    EXPECT_EQ(table.held(op).least.gradients, 0);
  }
  ASSERT_EQ(table.values().size(), 2);
  for (const CostTable::Value& value : table.values()) {
    EXPECT_EQ(value.bytes_per_sample, 32);
    EXPECT_EQ(value.least_per_sample, 32);
    ASSERT_EQ(value.uses.size(), 1);
    EXPECT_EQ(value.uses[0].consumer, value.producer + 1);
    EXPECT_TRUE(value.uses[0].gradient);
  }
}

}  // namespace
}  // namespace stagewright
