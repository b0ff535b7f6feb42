#include "planner_service/models/stage_maker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "common/graph/operator_graph.h"
#include "tests/support/clusters.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/search_case.h"

namespace stagewright {
namespace {

using testing::Rng;

// Whatever the order of the operators: their nodes, each once, none before what it reads.
TEST(StageMakerTest, NodesAreThoseOfTheOperatorsInTopologicalOrder) {
  Rng random(11);
  for (int i = 0; i < 50; ++i) {
    SCOPED_TRACE(i);
    const Graph graph = testing::RandomNetwork(random, 12);
    const Cluster cluster = testing::FlatCluster(2);
    const OperatorGraph operators = *Coarsen(graph, std::vector<double>(graph.size(), 1));
    const auto costs = MakeAnalyticCostModel(graph);
    const Problem problem{&graph, &operators, &cluster, costs.get(), 4, Optimizer::kSgd};
    const StageMaker maker(problem);
    std::vector<OperatorId> all;
    for (int32_t op = 0; op < operators.size(); ++op) all.push_back(OperatorId(op));
    std::shuffle(all.begin(), all.end(), random);
    all.resize(testing::Uniform(random, 1, operators.size()));
    const Stage stage = maker.Make(all);
    std::sort(all.begin(), all.end());
    std::vector<NodeId> expected;
    for (OperatorId op : all) {
      const std::vector<NodeId>& nodes = operators.op(op).nodes;
      expected.insert(expected.end(), nodes.begin(), nodes.end());
    }
    EXPECT_EQ(stage.nodes, expected);
    std::vector<bool> there(graph.size(), false);
    for (NodeId node : stage.nodes) {
      for (int32_t after : graph.dag().Successors(node.value())) EXPECT_FALSE(there[after]);
      there[node.index()] = true;
    }
    EXPECT_EQ(stage.replicated, ReplicatedInto(graph, operators, expected));
    EXPECT_TRUE(stage.devices.empty());
  }
}

}  // namespace
}  // namespace stagewright
