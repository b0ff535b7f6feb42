#include "common/cost/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using testing::Batched;
using ::testing::ElementsAre;
using testing::GraphBuilder;
using testing::NodeOf;
using testing::Number;

TEST(Retention, InputsOfProductsAndOutputsOfActivations) {
  GraphBuilder builder("mlp");
  const Argument x = builder.Feature("x", {8});
  const Argument a = builder.Linear(x, 8, 8);
  const Argument r = builder.Add("aten.relu.default", {a}, {8});
  const Argument b = builder.Linear(r, 8, 8);
  const Argument g = builder.Add("aten.gelu.default", {b}, {8});
  const Argument s = builder.Add("aten.add.Tensor", {g, r}, {8});
  const Argument c = builder.Linear(s, 8, 8);
  const Argument d = builder.Add("aten.add.Tensor", {c, s}, {8});
  const Graph graph = builder.Build();
  const auto kept = KeptOutputs(graph);
  auto is_kept = [&](const Argument& value) { return kept[NodeOf(value).index()][0]; };
  EXPECT_FALSE(is_kept(a)) << "relu needs its result only";
  EXPECT_TRUE(is_kept(r)) << "relu's result, and the next product's operand";
  EXPECT_TRUE(is_kept(b)) << "gelu's operand";
  EXPECT_FALSE(is_kept(g)) << "a sum needs nothing";
  EXPECT_TRUE(is_kept(s)) << "the product's operand";
  EXPECT_FALSE(is_kept(c));
  EXPECT_FALSE(is_kept(d)) << "nobody needs the end";
}

TEST(Retention, ViewsPassTheNeedOnAndKeepNothing) {
  GraphBuilder builder("views");
  const Argument x = builder.Feature("x", {8});
  const Argument a = builder.Linear(x, 8, 8);
  const Argument v = builder.Add("aten.view.default", {a, Number(-1)}, {2, 4});
  const Argument t = builder.Add("aten.transpose.int", {v, Number(1), Number(2)}, {4, 2});
  const Argument w = builder.Weight("w", {2, 2});
  builder.Add("aten.linear.default", {t, w}, {4, 2});
  const Argument b = builder.Linear(x, 8, 8);
  builder.Add("aten.view.default", {b, Number(-1)}, {2, 4});
  const auto kept = KeptOutputs(builder.Build());
  EXPECT_TRUE(kept[NodeOf(a).index()][0]);
  EXPECT_FALSE(kept[NodeOf(v).index()][0]);
  EXPECT_FALSE(kept[NodeOf(t).index()][0]);
  EXPECT_FALSE(kept[NodeOf(b).index()][0]);
}

TEST(Retention, NothingUpstreamOfTrainingIsKeptButOperandsOfIt) {
  GraphBuilder builder("frozen");
  const Argument x = builder.Feature("x", {8});
  const Argument w = builder.Weight("w", {8, 8}, /*trainable=*/false);
  const Argument a = builder.Add("aten.linear.default", {x, w}, {8});
  const Argument s = builder.Add("aten.softmax.int", {a, Number(-1)}, {8});
  const Argument b = builder.Linear(s, 8, 8);
  const Argument v = builder.Weight("v", {8, 8}, /*trainable=*/false);
  builder.Add("aten.linear.default", {b, v}, {8});
  const auto kept = KeptOutputs(builder.Build());
  EXPECT_FALSE(kept[NodeOf(a).index()][0]) << "the frozen part has no backward pass";
  EXPECT_TRUE(kept[NodeOf(s).index()][0]) << "needed for the gradient of b's weight";
  EXPECT_FALSE(kept[NodeOf(b).index()][0]) << "a frozen weight has no gradient to compute";
}

TEST(Retention, InputsAreKeptByWhatNeedsThemAlsoThroughViews) {
  GraphBuilder builder("inputs");
  const Argument x = builder.Feature("x", {8});
  const Argument a = builder.Linear(x, 8, 8);
  const Argument v = builder.Add("aten.view.default", {x, Number(-1)}, {8});
  const Argument b = builder.Linear(v, 8, 8);
  const Argument u = builder.Add("aten.view.default", {x, Number(-1)}, {8});
  const Argument s = builder.Add("aten.add.Tensor", {b, u}, {8});
  const Graph graph = builder.Build();
  const std::vector<bool> keeps = KeepsInputs(graph);
  EXPECT_TRUE(keeps[NodeOf(a).index()]);
  EXPECT_TRUE(keeps[NodeOf(v).index()]) << "for the linear layer that reads the view";
  EXPECT_FALSE(keeps[NodeOf(b).index()] && !graph.Inputs(NodeOf(b)).empty());
  EXPECT_FALSE(keeps[NodeOf(u).index()]) << "a sum needs no operand";
  EXPECT_FALSE(keeps[NodeOf(s).index()]);
}

TEST(Retention, SecondOutputsAndMasks) {
  GraphBuilder builder("masks");
  const Argument x = builder.Feature("x", {8});
  const Argument a = builder.Linear(x, 8, 8);
  const Argument n = builder.AddWith("aten.native_dropout.default", {a, {0.5}, {true}},
                                     {Batched({8}), Batched({8}, DType::kBool)});
  const Argument d = builder.Add("aten.dropout.default", {n, {0.5}, {true}}, {8});
  const Graph graph = builder.Build();
  const auto kept = KeptOutputs(graph);
  EXPECT_THAT(kept[NodeOf(n).index()], ElementsAre(false, true));
  EXPECT_THAT(kept[NodeOf(d).index()], ElementsAre(false));
  EXPECT_EQ(HiddenBytes(graph, NodeOf(d), 3), 3 * 8);
  EXPECT_EQ(HiddenBytes(graph, NodeOf(n), 3), 0) << "its mask is an output";
}

TEST(Retention, FiguresPerRow) {
  GraphBuilder builder("rows");
  const Argument x = builder.Linear(builder.Feature("x", {5, 8}), 8, 8);
  const Argument n =
      builder.Add("aten.layer_norm.default",
                  {x, Number(8), builder.Weight("g", {8}), builder.Weight("b", {8})}, {5, 8});
  const Argument a = builder.Add("aten.scaled_dot_product_attention.default", {n, n, n}, {5, 8});
  const Argument p = builder.Add("aten.max_pool2d.default", {a, Number(2)}, {5, 4});
  const Graph graph = builder.Build();
  EXPECT_EQ(HiddenBytes(graph, NodeOf(n), 3), 3 * 5 * 2 * 4) << "mean and deviation";
  EXPECT_EQ(HiddenBytes(graph, NodeOf(a), 3), 3 * 5 * 4) << "logarithm of the sum";
  EXPECT_EQ(HiddenBytes(graph, NodeOf(p), 3), 3 * 5 * 4 * 8) << "a position per element";
}

TEST(Retention, Temporaries) {
  GraphBuilder builder("loss");
  const Argument x = builder.Linear(builder.Feature("x", {8}), 8, 8);
  builder.Loss(x, {8});
  const Graph graph = builder.Build();
  const NodeId loss = graph.loss()->node;
  EXPECT_EQ(TemporaryBytes(graph, loss, 3, /*backward=*/false), 2 * 3 * 8 * 4);
  EXPECT_EQ(TemporaryBytes(graph, loss, 3, /*backward=*/true), 0);
}

}  // namespace
}  // namespace stagewright
