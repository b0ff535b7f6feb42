// The shape of graphs whose operators are cut; that they compute the same is the engine's test
// (tests/worker_daemon/executor/executor_splits_test.cc).
#include "common/rewrite/split_operators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using testing::Batched;
using ::testing::ElementsAre;
using testing::GraphBuilder;
using ::testing::HasSubstr;
using testing::Number;

// n0 = linear 6 -> 8, n1 = relu, n2 = linear 8 -> 4, then the loss.
Graph Mlp() {
  GraphBuilder build("mlp");
  const Argument wide = build.Linear(build.Feature("x", {6}), 6, 8);
  const Argument active = build.Add("aten.relu.default", {wide}, {8});
  build.Loss(build.Linear(active, 8, 4), {4});
  return build.Build();
}

std::vector<std::string> Targets(const Graph& graph) {
  std::vector<std::string> targets;
  for (const Node& node : graph.nodes()) targets.push_back(node.target);
  return targets;
}

TEST(SplitOperatorsTest, NothingToCutLeavesTheGraphAsItIs) {
  const Graph whole = Mlp();
  const auto graph = SplitOperators(whole, {});
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(Targets(*graph), Targets(whole));
}

TEST(SplitOperatorsTest, ColumnsGoThroughAnActivationAndAreJoined) {
  const Graph whole = Mlp();
  const auto graph = SplitOperators(whole, {{"n0", 2}});
  ASSERT_TRUE(graph.ok()) << graph.status();
  // n0 is its own first part, as nothing reads it joined; n1 joins what n2 reads.
  EXPECT_EQ(graph->node(NodeId(0)).name, "n0[1/2]");
  EXPECT_EQ(graph->node(NodeId(0)).outputs.front(), Batched({4}));
  EXPECT_EQ(graph->node(NodeId(1)).target, "aten.cat.default");
  EXPECT_EQ(graph->node(NodeId(1)).outputs, whole.node(NodeId(1)).outputs);
  EXPECT_EQ(graph->node(NodeId(2)).args, whole.node(NodeId(2)).args);
  EXPECT_EQ(graph->size(), whole.size() + 3);
  EXPECT_EQ(graph->loss(), whole.loss());
  std::vector<std::string> names;
  for (const Parameter& parameter : graph->parameters()) names.push_back(parameter.name);
  EXPECT_THAT(names, ElementsAre("linear0.weight[1/2]", "linear0.bias[1/2]", "linear2.weight",
                                 "linear2.bias", "linear0.weight[2/2]", "linear0.bias[2/2]"));
}

TEST(SplitOperatorsTest, RowsAreAddedUpWithoutAJoin) {
  const auto graph = SplitOperators(Mlp(), {{"n0", 4}, {"n2", 4}});
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(Targets(*graph), ::testing::Not(::testing::Contains("aten.cat.default")));
  const Node& last = graph->node(NodeId(2));
  EXPECT_EQ(last.target, "aten.add.Tensor");
  // The bias is added once, to the sum.
  EXPECT_EQ(last.args[1], Argument{ParameterId(3)});
  EXPECT_FALSE(graph->parameter(ParameterId(3)).slice.has_value());
  EXPECT_EQ(graph->parameter(ParameterId(2)).slice->dim, 1);
}

// Two layers of one weight; `also` reads it, too, as something else.
Graph Shared(bool also) {
  GraphBuilder build("shared");
  const Argument weight = build.Weight("w", {6, 6});
  Argument x = build.Feature("x", {6});
  for (int i = 0; i < 2; ++i) x = build.Add("aten.linear.default", {x, weight}, {6});
  if (also)
    x = build.Add(
        "aten.add.Tensor",
        {x, build.AddWith("aten.sum.default", {weight}, {TensorMeta{DType::kFloat32, {}}})}, {6});
  build.Loss(x, {6});
  return build.Build();
}

TEST(SplitOperatorsTest, LayersOfOneWeightAreCutAlike) {
  const auto graph = SplitOperators(Shared(false), {{"n0", 2}});
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (const Node& node : graph->nodes()) {
    if (node.target != "aten.linear.default") continue;
    EXPECT_EQ(node.outputs.front(), Batched({3})) << node.name;
  }
  EXPECT_EQ(graph->parameters().size(), 2u);
  EXPECT_TRUE(SplitOperators(Shared(false), {{"n0", 2}, {"n1", 2}}).ok());
  EXPECT_THAT(SplitOperators(Shared(false), {{"n0", 2}, {"n1", 3}}).status().message(),
              HasSubstr("parameter \"w\" is read by several nodes"));
}

TEST(SplitOperatorsTest, RefusesAParameterThatOthersRead) {
  EXPECT_THAT(SplitOperators(Shared(true), {{"n0", 2}}).status().message(),
              HasSubstr("parameter \"w\" is read by node \"n2\", too"));
}

// Words through a table and back to scores of words through the same.
Graph Tied(std::vector<Argument> more) {
  GraphBuilder build("tied");
  const Argument table = build.Weight("table", {12, 6});
  std::vector<Argument> args = {table, build.Feature("words", {}, DType::kInt64)};
  args.insert(args.end(), more.begin(), more.end());
  const Argument x = build.Add("aten.embedding.default", std::move(args), {6});
  build.Loss(build.Add("aten.linear.default", {x, table}, {12}), {12});
  return build.Build();
}

TEST(SplitOperatorsTest, AnEmbeddingThatIsTheHeadIsCutByWords) {
  for (const char* name : {"n0", "n1"}) {
    const auto graph = SplitOperators(Tied({}), {{name, 4}});
    ASSERT_TRUE(graph.ok()) << graph.status();
    ASSERT_EQ(graph->parameters().size(), 4u);
    for (int32_t i = 0; i < 4; ++i) {
      const auto& slice = graph->parameter(ParameterId(i)).slice;
      EXPECT_EQ(slice, (ParameterSlice{"table", {}, {12, 6}, 0, 3 * i}));
    }
    EXPECT_EQ(graph->node(NodeId(0)).target, "aten.add.Tensor");
    EXPECT_EQ(graph->node(NodeId(0)).outputs.front(), Batched({6}));
  }
  EXPECT_THAT(SplitOperators(Tied({}), {{"n0", 5}}).status().message(),
              HasSubstr("5 parts do not divide num_embeddings = 12; near by do 4 and 6"));
}

TEST(SplitOperatorsTest, PaddingIsAWordOfOnePart) {
  const auto graph = SplitOperators(Tied({testing::Number(7), {false}, {false}}), {{"n1", 4}});
  ASSERT_TRUE(graph.ok()) << graph.status();
  std::vector<Argument> padding;
  for (const Node& node : graph->nodes()) {
    if (node.target == "aten.embedding.default") padding.push_back(node.args[2]);
  }
  EXPECT_THAT(padding, ElementsAre(testing::Number(-1), testing::Number(-1), testing::Number(1),
                                   testing::Number(-1)));
}

TEST(SplitOperatorsTest, RefusesGradientsScaledByCounts) {
  EXPECT_THAT(
      SplitOperators(Tied({testing::Number(-1), {true}, {false}}), {{"n1", 4}}).status().message(),
      HasSubstr("node \"n0\" cannot be cut: it scales gradients"));
}

// A projection of which the second half gates the first, and a layer behind it; "whole": something
// else reads it as it is.
Graph Gated(bool whole) {
  GraphBuilder build("gated");
  const Argument wide = build.Linear(build.Feature("x", {6}), 6, 16);
  const Argument first =
      build.AddWith("aten.split.Tensor", {wide, testing::Number(8), testing::Number(-1)},
                    {Batched({8}), Batched({8})});
  const Argument second = {ValueRef{testing::NodeOf(first), 1}};
  const Argument gated = build.Add("aten.mul.Tensor", {first, second}, {8});
  Argument y = build.Linear(gated, 8, 4);
  if (whole)
    y = build.Add("aten.add.Tensor", {y, build.Add("aten.sum.dim_IntList", {wide}, {1})}, {4});
  build.Loss(y, {4});
  return build.Build();
}

TEST(SplitOperatorsTest, AJointLayerIsCutLayerByLayer) {
  const auto graph = SplitOperators(Gated(false), {{"n0", 4}, {"n3", 4}});
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(Targets(*graph), ::testing::Not(::testing::Contains("aten.cat.default")));
  std::vector<int64_t> begins;
  for (const Parameter& parameter : graph->parameters()) {
    if (parameter.slice.has_value() && parameter.slice->whole == "linear0.weight") {
      EXPECT_EQ(parameter.shape, (std::vector<int64_t>{2, 6}));
      begins.push_back(parameter.slice->begin);
    }
  }
  EXPECT_THAT(begins, ::testing::UnorderedElementsAre(0, 2, 4, 6, 8, 10, 12, 14));
}

TEST(SplitOperatorsTest, AJointLayerBehindPartsIsCutByWhatComesOut) {
  GraphBuilder build("behind");
  const Argument x = build.Linear(build.Feature("x", {6}), 6, 8);
  const Argument wide = build.Linear(build.Add("aten.relu.default", {x}, {8}), 8, 16);
  const Argument first = build.AddWith("aten.chunk.default", {wide, Number(2), Number(-1)},
                                       {Batched({8}), Batched({8})});
  const Argument second = {ValueRef{testing::NodeOf(first), 1}};
  build.Loss(build.Add("aten.mul.Tensor", {first, second}, {8}), {8});
  const auto graph = SplitOperators(build.Build(), {{"n0", 2}, {"n2", 2}});
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->parameters().size(), 12u);  // Two slices of each of A, four of each of B.
}

TEST(SplitOperatorsTest, ATiedJointLayerIsOneLayer) {
  GraphBuilder build("tied and joint");
  const Argument weight = build.Weight("w", {16, 8});
  const Argument a = build.Add("aten.linear.default", {build.Feature("a", {8}), weight}, {16});
  const Argument b = build.Add("aten.linear.default", {build.Feature("b", {8}), weight}, {16});
  const Argument first =
      build.AddWith("aten.chunk.default", {a, Number(2), Number(-1)}, {Batched({8}), Batched({8})});
  const Argument second = {ValueRef{testing::NodeOf(first), 1}};
  const Argument gated = build.Add("aten.mul.Tensor", {first, second}, {8});
  build.Loss(build.Add("aten.cat.default", {{Argument::List{gated, b}}, Number(1)}, {24}), {24});
  EXPECT_TRUE(SplitOperators(build.Build(), {{"n0", 2}}).ok());
}

TEST(SplitOperatorsTest, AJointLayerThatIsReadWholeIsOneLayer) {
  const auto graph = SplitOperators(Gated(true), {{"n0", 4}});
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(Targets(*graph), ::testing::Contains("aten.cat.default"));
  EXPECT_EQ(graph->parameter(ParameterId(0)).shape, (std::vector<int64_t>{4, 6}));
}

TEST(SplitOperatorsTest, RefusesWhatCannotBeCut) {
  const Graph graph = Mlp();
  EXPECT_THAT(SplitOperators(graph, {{"n1", 2}}).status().message(), HasSubstr("cannot be cut"));
  EXPECT_THAT(SplitOperators(graph, {{"n9", 2}}).status().message(),
              HasSubstr("there is no node or module \"n9\""));
  EXPECT_THAT(SplitOperators(graph, {{"n0", 3}}).status().message(),
              HasSubstr("3 parts do not divide out_features = 8; near by do 2 and 4"));
  EXPECT_THAT(SplitOperators(graph, {{"n0", 2}, {"n0", 2}}).status().message(),
              HasSubstr("given twice"));
}

// A head over 12 words for 3 tokens a sample, and its loss.
Graph Head(bool rows) {
  GraphBuilder build("head");
  const Argument logits = build.Linear(build.Feature("x", {6}), 6, 12);
  const Argument labels = build.Feature("labels", {}, DType::kInt64);
  const Argument loss = build.AddWith("aten.cross_entropy_loss.default", {logits, labels},
                                      {TensorMeta{DType::kFloat32, {}}});
  build.data.loss = ValueRef{testing::NodeOf(loss), 0};
  Argument prediction = logits;
  if (!rows) prediction = build.Add("aten.view.default", {logits, {Argument::List{}}}, {12, 1});
  build.data.prediction = std::get<ValueRef>(prediction.value);
  return build.Build();
}

TEST(SplitOperatorsTest, NoNodeHoldsAllLogitsUnlessAccuracyIsTold) {
  for (const bool rows : {false, true}) {
    const auto graph = SplitOperators(Head(rows), {{"n0", 4}});
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(graph->prediction().has_value(), rows);
    bool whole = false;
    for (const Node& node : graph->nodes())
      whole = whole || (!node.outputs.front().shape.empty() && IsFloating(node.outputs[0].dtype) &&
                        node.outputs[0].Elements(1) >= 12);
    EXPECT_EQ(whole, rows);
    EXPECT_EQ(graph->node(graph->loss()->node).target, "aten.div.Tensor");
  }
}

TEST(SplitOperatorsTest, LengthsAreCutAlike) {
  const auto graphs = SplitOperators(std::vector<Graph>{Mlp(), Mlp()}, {{"n0", 2}});
  ASSERT_TRUE(graphs.ok()) << graphs.status();
  ASSERT_EQ(graphs->size(), 2u);
  EXPECT_EQ(Targets(graphs->at(0)), Targets(graphs->at(1)));
}

}  // namespace
}  // namespace stagewright
