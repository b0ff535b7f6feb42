#include "common/memory/segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PlanSegments, PutsParameterNodesApartFromWhatComesBetweenThem) {
  // x (place 0, received) -> a = linear(x); b = tanh(a); c = b + x; d = linear(c, t); t = transpose
  // of a parameter (place 4); e = d + c; k = a constant (place 7); f = e + k.
  const std::vector<SegmentNode> nodes = {{.reads = {0}, .makes = {1}, .takes_parameter = true},
                                          {.reads = {1}, .makes = {2}},
                                          {.reads = {2, 0}, .makes = {3}},
                                          {.reads = {}, .makes = {4}, .takes_parameter = true},
                                          {.reads = {3, 4}, .makes = {5}},
                                          {.reads = {5, 3}, .makes = {6}},
                                          {.reads = {}, .makes = {7}},
                                          {.reads = {6, 7}, .makes = {8}}};
  const SegmentPlan plan = PlanSegments(nodes, 9, 1, {8});
  EXPECT_EQ(plan.segments, 6);
  EXPECT_THAT(plan.of_node, ElementsAre(2, 3, 3, 0, 4, 5, 1, 5));
  EXPECT_THAT(plan.reads[2], ElementsAre(0));
  EXPECT_THAT(plan.reads[3], ElementsAre(0, 1));
  EXPECT_THAT(plan.reads[4], ElementsAre(3, 4));
  EXPECT_THAT(plan.reads[5], ElementsAre(3, 5, 7));
  EXPECT_THAT(plan.gives[3], ElementsAre(3));
  EXPECT_THAT(plan.gives[0], ElementsAre(4));
  EXPECT_THAT(plan.gives[5], ElementsAre(8));
  EXPECT_FALSE(plan.crosses[2]);
}

TEST(PlanSegments, WhatReadsInputsAndParametersIsNoPartOfTheParameterSide) {
  // An embedding of an input; a table looked up by a constant; their sum.
  const std::vector<SegmentNode> nodes = {
      {.reads = {}, .makes = {0}, .takes_parameter = true, .takes_input = true},
      {.reads = {}, .makes = {1}},
      {.reads = {1}, .makes = {2}, .takes_parameter = true},
      {.reads = {0, 2}, .makes = {3}}};
  EXPECT_THAT(PlanSegments(nodes, 4, 0, {3}).of_node, ElementsAre(2, 1, 0, 4));
}

TEST(MakeSegmentNode, TellsParametersThatTrainAndWhatComesWithTheBatch) {
  testing::GraphBuilder builder("four");
  const Argument x = builder.Feature("x", {4});
  const Argument frozen = builder.Weight("frozen", {4}, /*trainable=*/false);
  const Argument trained = builder.Weight("trained", {4});
  const Argument first = builder.Add("aten.mul.Tensor", {x, frozen}, {4});
  const Argument second = builder.Add("aten.mul.Tensor", {first, trained}, {4});
  const Argument third = builder.Add("aten.div.Tensor", {second, {TotalId(0)}}, {4});
  builder.Loss(third, {4});
  Node total;
  total.name = "total";
  total.target = "aten.sum.default";
  total.args = {x};
  total.outputs = {testing::Fixed({})};
  builder.data.totals = {{total}, {{NodeId(0), 0}}};
  const Graph graph = builder.Build();
  const auto takes = [&](const Argument& value) {
    const SegmentNode node = MakeSegmentNode(graph, testing::NodeOf(value));
    return std::pair(node.takes_parameter, node.takes_input);
  };
  EXPECT_EQ(takes(first), std::pair(false, true));
  EXPECT_EQ(takes(second), std::pair(true, false));
  EXPECT_EQ(takes(third), std::pair(false, true));
}

TEST(NodeOrder, IsTopologicalOverOwnAndReplicatedNodes) {
  testing::GraphBuilder builder("chain");
  Argument value = builder.Feature("x", {4});
  for (int i = 0; i < 4; ++i) value = builder.Add("aten.relu.default", {value}, {4});
  builder.Loss(value, {4});
  const Graph graph = builder.Build();
  ProgramStage stage;
  stage.nodes = {NodeId(1), NodeId(3)};
  stage.replicated = {NodeId(2), NodeId(0)};
  EXPECT_THAT(NodeOrder(graph).Of(stage), ElementsAre(NodeId(0), NodeId(1), NodeId(2), NodeId(3)));
}

TEST(LastUses, AreByTheLastNodeThatTouchesAValue) {
  // Place 0 is received; 1 is read twice, 2 and 4 by nobody, 3 is kept.
  const std::vector<SegmentNode> nodes = {{.reads = {0}, .makes = {1, 2}},
                                          {.reads = {1, 0}, .makes = {3}},
                                          {.reads = {3, 1, 1}, .makes = {4}}};
  const std::vector<std::vector<int32_t>> last =
      LastUses(nodes, {false, false, false, true, false});
  EXPECT_THAT(last[0], ElementsAre(2));
  EXPECT_THAT(last[1], ElementsAre(0));
  EXPECT_THAT(last[2], ElementsAre(1, 4));
  EXPECT_THAT(LastUses(nodes, {true, true, true, true, true}), Each(IsEmpty()));
}

}  // namespace
}  // namespace stagewright
