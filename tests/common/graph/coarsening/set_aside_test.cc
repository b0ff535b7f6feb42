#include "common/graph/coarsening/set_aside.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "common/graph/operator_graph.h"
#include "tests/support/graph_builder.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using testing::GraphBuilder;
using ::testing::IsEmpty;
using testing::Rng;
using testing::Uniform;

// n0: a relu of the input; n1 and n2: products of n0, with parameters; n3: their sum; n4: loss.
Graph TwoReaders() {
  GraphBuilder builder("readers");
  const Argument x = builder.Add("aten.relu.default", {builder.Feature("x", {8})}, {8});
  const Argument a = builder.Linear(x, 8, 8), b = builder.Linear(x, 8, 8);
  builder.Loss(builder.Add("aten.add.Tensor", {a, b}, {8}), {8});
  return builder.Build();
}

TEST(SetAsideTest, CheapWorkOnInputsIsOneIfItIsLight) {
  const Graph graph = TwoReaders();
  EXPECT_THAT(SetAside(graph, {1, 9, 9, 1, 1}, 2), ElementsAre(true, false, false, false, false));
  EXPECT_THAT(SetAside(graph, {5, 9, 9, 1, 1}, 2), ElementsAre(false, false, false, false, false));
  EXPECT_THAT(MayBeSetAside(graph), ElementsAre(NodeId(0)));
}

TEST(SetAsideTest, NodesHaveWhatTheyReadOfIt) {
  const Graph graph = TwoReaders();
  EXPECT_THAT(SharedInto(graph, {NodeId(0)}, {NodeId(2), NodeId(3)}), ElementsAre(NodeId(0)));
  EXPECT_THAT(SharedInto(graph, {NodeId(0)}, {NodeId(3)}), IsEmpty());
  EXPECT_THAT(SharedInto(graph, {}, {NodeId(2)}), IsEmpty());
}

TEST(SetAsideProperty, WhatCoarseningReplicatesMayBeSetAside) {
  Rng rng(7);
  int replicated = 0;
  for (int i = 0; i < 300; ++i) {
    const Graph graph = testing::RandomGraph(rng, static_cast<int32_t>(Uniform(rng, 3, 30)));
    std::vector<double> weight;
    for (int32_t v = 0; v < graph.size(); ++v)
      weight.push_back(static_cast<double>(Uniform(rng, 0, 100)));
    const auto operators = Coarsen(graph, weight);
    ASSERT_TRUE(operators.ok()) << operators.status();
    const std::vector<NodeId> may = MayBeSetAside(graph);
    const std::set<NodeId> known(may.begin(), may.end());
    for (const NodeId node : operators->replicated()) EXPECT_TRUE(known.contains(node)) << node;
    replicated += !operators->replicated().empty();
  }
  EXPECT_GT(replicated, 10);
}

}  // namespace
}  // namespace stagewright
