#include "planner_service/models/stage_oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "planner_service/evaluator/evaluator.h"
#include "tests/support/clusters.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::Rng;
using testing::Uniform;

// A random network with everything an oracle needs.
struct Case {
  explicit Case(Rng& random)
      : graph(testing::RandomNetwork(random, static_cast<int32_t>(Uniform(random, 2, 16)))),
        cluster(testing::FlatCluster(4, kGiB)),
        costs(MakeAnalyticCostModel(graph)),
        operators(*OneOperatorPerNode(graph)),
        problem{&graph, &operators, &cluster, costs.get(), 16} {
    for (int32_t v : operators.dag().order()) order.push_back(OperatorId(v));
  }
  Case(const Case&) = delete;

  std::vector<NodeId> Nodes(int32_t begin, int32_t end) const {
    std::vector<NodeId> nodes;
    for (int32_t p = begin; p < end; ++p) {
      const auto& own = operators.op(order[p]).nodes;
      nodes.insert(nodes.end(), own.begin(), own.end());
    }
    return nodes;
  }

  Graph graph;
  Cluster cluster;
  std::unique_ptr<CostModel> costs;
  OperatorGraph operators;
  Problem problem;
  std::vector<OperatorId> order;
};

TEST(StageOracleTest, RangesAnswerWhatSumsOverTheirNodesGive) {
  Rng random(11);
  for (int round = 0; round < 100; ++round) {
    const Case c(random);
    const StageOracle oracle(c.problem, c.order);
    for (int trial = 0; trial < 20; ++trial) {
      const auto begin = static_cast<int32_t>(Uniform(random, 0, oracle.size() - 1));
      const auto end = static_cast<int32_t>(Uniform(random, begin + 1, oracle.size()));
      const int64_t samples = Uniform(random, 1, 8);
      const std::vector<NodeId> nodes = c.Nodes(begin, end);
      Nanos time = 0;
      Nanos forward = 0;
      Bytes saved = 0;
      Bytes workspace = 0;
      Bytes resident = 0;
      double in = 0;
      double out = 0;
      std::set<int32_t> inside;
      for (NodeId id : nodes) inside.insert(id.value());
      for (NodeId id : nodes) {
        const OperatorTime cost = c.costs->Time(id, c.cluster.kinds()[0], samples);
        time += cost.forward + cost.backward;
        forward += cost.forward;
        saved += c.costs->SavedBytes(id, samples);
        workspace = std::max(workspace, c.costs->WorkspaceBytes(id, samples));
      }
      for (ParameterId p : ParametersOf(c.graph, nodes)) {
        resident += ResidentBytes(c.graph.parameter(p), c.problem.optimizer);
      }
      std::set<ValueRef> received;
      std::set<ValueRef> sent;
      for (int32_t v = 0; v < c.graph.size(); ++v) {
        for (ValueRef value : c.graph.Values(NodeId(v))) {
          const bool from = inside.count(value.node.value()) > 0;
          const bool to = inside.count(v) > 0;
          if (to && !from) received.insert(value);
          if (from && !to) sent.insert(value);
        }
      }
      for (ValueRef value : received) in += static_cast<double>(c.graph.meta(value).SizeBytes(1));
      for (ValueRef value : sent) out += static_cast<double>(c.graph.meta(value).SizeBytes(1));

      const ShareCosts& share = oracle.Share(samples);
      EXPECT_NEAR(share.Time(begin, end), static_cast<double>(time), 1e-3);
      EXPECT_NEAR(share.Forward(begin, end), static_cast<double>(forward), 1e-3);
      EXPECT_EQ(share.Saved(begin, end), saved);
      EXPECT_GE(share.Workspace(begin, end), workspace);  // More where values flow past.
      EXPECT_EQ(oracle.At(begin, end).resident, resident);
      EXPECT_NEAR(oracle.At(begin, end).in_per_sample, in, 1e-6);
      EXPECT_NEAR(oracle.At(begin, end).out_per_sample, out, 1e-6);
      EXPECT_GE(oracle.At(begin, end).returned_per_sample, out - 1e-6);
    }
  }
}

// The search must not believe that a stage fits when the evaluator finds that it does not.
TEST(StageOracleTest, MemoryIsHardlyEverBelowTheEvaluatorsPeak) {
  Rng random(12);
  int compared = 0;
  for (int round = 0; round < 200; ++round) {
    const Case c(random);
    const StageOracle oracle(c.problem, c.order);
    std::vector<int32_t> cuts = {0};
    while (cuts.back() < oracle.size() && cuts.size() < 4) {
      cuts.push_back(static_cast<int32_t>(Uniform(random, cuts.back() + 1, oracle.size())));
    }
    cuts.back() = oracle.size();
    std::vector<std::vector<int32_t>> groups;
    std::vector<std::vector<int32_t>> devices;
    for (size_t s = 0; s + 1 < cuts.size(); ++s) {
      groups.emplace_back();
      for (NodeId id : c.Nodes(cuts[s], cuts[s + 1])) groups.back().push_back(id.value());
      devices.push_back({static_cast<int32_t>(s)});
    }
    const Strategy strategy = testing::MakeStrategy(c.graph, groups, devices, 16, 2);
    const auto evaluation = Evaluate(c.graph, c.cluster, *c.costs, strategy, {});
    ASSERT_TRUE(evaluation.ok()) << evaluation.status();
    for (size_t s = 0; s + 1 < cuts.size(); ++s) {
      const int64_t in_flight = strategy.stages[s].schedule.in_flight / 2;
      // A stage without a backward pass holds what it has not yet sent, which depends on time.
      if (!evaluation->program.stages[s].has_backward) continue;
      EXPECT_GE(1.02 * static_cast<double>(oracle.Memory(cuts[s], cuts[s + 1], {2, in_flight, 8})),
                static_cast<double>(evaluation->stages[s].peak_memory))
          << "stage " << s << " of " << groups.size();
      ++compared;
    }
  }
  EXPECT_GT(compared, 200);
}

TEST(StageOracleTest, ASharedParameterCountsOncePerRange) {
  GraphData data;
  data.name = "tied";
  data.parameters = {{"w", DType::kFloat32, {64, 64}}};
  data.inputs = {{"x", {DType::kFloat32, {{1, 0}, {0, 64}}}}};
  const TensorMeta meta{DType::kFloat32, {{1, 0}, {0, 64}}};
  for (int i = 0; i < 3; ++i) {
    Node node;
    node.name = absl::StrCat("n", i);
    node.target = "aten.linear.default";
    Argument from{InputId(0)};
    if (i > 0) from = Argument{ValueRef{NodeId(i - 1), 0}};
    node.args = {from, Argument{ParameterId(0)}};
    node.outputs = {meta};
    data.nodes.push_back(node);
  }
  const Graph graph = *Graph::Create(data);
  const OperatorGraph operators = *OneOperatorPerNode(graph);
  const auto costs = MakeAnalyticCostModel(graph);
  const Cluster cluster = testing::FlatCluster(2);
  const Problem problem{&graph, &operators, &cluster, costs.get(), 8, Optimizer::kSgd};
  const StageOracle oracle(problem, {OperatorId(0), OperatorId(1), OperatorId(2)});
  const Bytes one = 2 * 64 * 64 * 4;  // Value and gradient.
  EXPECT_EQ(oracle.At(0, 3).resident, one);
  EXPECT_EQ(oracle.At(0, 1).resident, one);
  EXPECT_EQ(oracle.At(1, 3).resident, one);
  EXPECT_EQ(oracle.At(1, 3).gradients, 64 * 64 * 4);
}

TEST(StageOracleTest, GrowingARangeGivesWhatAskingForItGives) {
  Rng random(14);
  for (int round = 0; round < 50; ++round) {
    const Case c(random);
    const StageOracle oracle(c.problem, c.order);
    for (int32_t end = 1; end <= oracle.size(); ++end) {
      StageOracle::Extent extent;
      for (int32_t begin = end - 1; begin >= 0; --begin) {
        extent = oracle.Grow(extent, begin, end);
        const StageOracle::Extent& asked = oracle.At(begin, end);
        EXPECT_EQ(extent.resident, asked.resident);
        EXPECT_EQ(extent.in_per_sample, asked.in_per_sample);
        EXPECT_EQ(extent.out_per_sample, asked.out_per_sample);
      }
    }
  }
}

TEST(StageOracleTest, ExchangesAreTheDataEdgesAndAddUpToWhatRangesReceive) {
  Rng random(15);
  for (int round = 0; round < 100; ++round) {
    const Case c(random);
    const StageOracle oracle(c.problem, c.order);
    std::vector<int32_t> begins = {0};
    for (int32_t p = 1; p < oracle.size(); ++p) {
      if (Uniform(random, 0, 2) == 0) begins.push_back(p);
    }
    std::vector<Stage> stages(begins.size());
    for (size_t s = 0; s < begins.size(); ++s) {
      const int32_t end = s + 1 < begins.size() ? begins[s + 1] : oracle.size();
      stages[s].nodes = c.Nodes(begins[s], end);
    }
    const auto exchanges = oracle.Exchanges(begins);
    const auto edges = DataEdges(c.graph, stages);
    ASSERT_EQ(exchanges.size(), edges.size());
    std::vector<double> into(begins.size(), 0);
    for (size_t e = 0; e < edges.size(); ++e) {
      EXPECT_EQ(exchanges[e].from, edges[e].from.value());
      EXPECT_EQ(exchanges[e].to, edges[e].to.value());
      into[exchanges[e].to] += static_cast<double>(exchanges[e].there);
    }
    for (size_t s = 0; s < begins.size(); ++s) {
      const int32_t end = s + 1 < begins.size() ? begins[s + 1] : oracle.size();
      EXPECT_DOUBLE_EQ(into[s], oracle.At(begins[s], end).in_per_sample);
    }
  }
}

}  // namespace
}  // namespace stagewright
