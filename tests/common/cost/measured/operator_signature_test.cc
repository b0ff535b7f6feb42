#include "common/cost/measured/operator_signature.h"

#include <gtest/gtest.h>

#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using testing::Batched;
using testing::Fixed;
using testing::GraphBuilder;
using testing::NodeOf;
using testing::Number;

TEST(OperatorSignature, SaysTypesShapesGradientsAndAttributes) {
  GraphBuilder builder("signatures");
  const Argument x = builder.Feature("x", {8});
  const Argument first = builder.Linear(x, 8, 4);
  const Argument frozen = builder.Weight("frozen", {4, 4}, false);
  const Argument second = builder.Add("aten.linear.default", {first, frozen, {None{}}}, {4});
  builder.Loss(second, {4});
  const Graph graph = builder.Build();
  EXPECT_EQ(SignatureOf(graph, NodeOf(first)),
            "aten.linear.default(float32[s,8], p float32[4,8]', p float32[4]') -> float32[s,4]'");
  EXPECT_EQ(SignatureOf(graph, NodeOf(second)),
            "aten.linear.default(float32[s,4]', p float32[4,4], none) -> float32[s,4]'");
  EXPECT_EQ(SignatureOf(graph, NodeOf(second), Precision::kBFloat16),
            "aten.linear.default(bfloat16[s,4]', p float32[4,4], none) -> bfloat16[s,4]' in bf16")
      << "what comes from a product has the smaller type, and is not cast";
  EXPECT_EQ(SignatureOf(graph, NodeOf(first), Precision::kBFloat16),
            "aten.linear.default(float32[s,8], p float32[4,8]', p float32[4]') -> "
            "bfloat16[s,4]' in bf16");
  EXPECT_EQ(SignaturesOf(graph, Precision::kBFloat16)[NodeOf(second).index()],
            SignatureOf(graph, NodeOf(second), Precision::kBFloat16));
}

TEST(OperatorSignature, EqualOperatorsShareOneAndOthersDoNot) {
  GraphBuilder builder("equal");
  const Argument x = builder.Feature("x", {8});
  const Argument first = builder.Linear(x, 8, 8);
  const Argument a = builder.Linear(first, 8, 8);
  const Argument d = builder.Linear(a, 8, 8);
  const Argument c = builder.Linear(d, 8, 8);
  const Argument b = builder.Linear(c, 8, 8);
  const Argument square = builder.Add("aten.mul.Tensor", {b, b}, {8});
  const Argument product = builder.Add("aten.mul.Tensor", {b, c}, {8});
  const Argument doubled = builder.Add("aten.mul.Tensor", {b, Number(2)}, {8});
  const Argument tripled = builder.Add("aten.mul.Tensor", {b, Number(3)}, {8});
  const Graph graph = builder.Build();
  EXPECT_EQ(SignatureOf(graph, NodeOf(a)),
            "aten.linear.default(float32[s,8]', p float32[8,8]', p float32[8]') -> float32[s,8]'");
  EXPECT_EQ(SignatureOf(graph, NodeOf(d)), SignatureOf(graph, NodeOf(a)));
  // The first one's operand gets no gradient.
  EXPECT_NE(SignatureOf(graph, NodeOf(first)), SignatureOf(graph, NodeOf(a)));
  EXPECT_EQ(SignatureOf(graph, NodeOf(square)),
            "aten.mul.Tensor(float32[s,8]', =0) -> float32[s,8]'");
  EXPECT_NE(SignatureOf(graph, NodeOf(square)), SignatureOf(graph, NodeOf(product)));
  EXPECT_NE(SignatureOf(graph, NodeOf(doubled)), SignatureOf(graph, NodeOf(tripled)));
}

TEST(OperatorSignature, ViewsAreToldByWhatTheyShow) {
  GraphBuilder builder("views");
  const Argument first = builder.Linear(builder.Feature("x", {6}), 6, 6);
  const Argument parts = builder.AddWith("aten.split.Tensor", {first, Number(3), Number(1)},
                                         {Batched({3}), Batched({3})});
  const Argument right{ValueRef{NodeOf(parts), 1}};
  const Argument sum = builder.Add("aten.add.Tensor", {right, parts}, {3});
  const Argument plain = builder.Add("aten.add.Tensor", {sum, sum}, {3});
  builder.Loss(plain, {3});
  const Graph graph = builder.Build();
  EXPECT_EQ(SignatureOf(graph, NodeOf(sum)),
            "aten.add.Tensor(split(float32[s,6], 3, 1).1', split(=1, 3, 1)') -> float32[s,3]''");
  EXPECT_EQ(SignatureOf(graph, NodeOf(parts)),
            "aten.split.Tensor(float32[s,6]', 3, 1) -> float32[s,3]', float32[s,3]'");
}

TEST(OperatorSignature, GradientsComeToWhatReadersWithABackwardPassRead) {
  GraphBuilder builder("outputs");
  const Argument x = builder.Feature("x", {6});
  const Argument first = builder.Linear(x, 6, 6);
  const Argument parts = builder.AddWith("aten.split.Tensor", {first, Number(3), Number(1)},
                                         {Batched({3}), Batched({3})});
  const Argument used{ValueRef{NodeOf(parts), 1}};
  const Argument last = builder.Add("aten.relu.default", {used}, {3});
  const Argument mask =
      builder.AddWith("aten.gt.Scalar", {last, Number(0)}, {Batched({3}, DType::kBool)});
  builder.Loss(last, {3});
  const Graph graph = builder.Build();
  EXPECT_EQ(GradientsReceived(graph, NodeOf(parts)), (std::vector<int>{0, 1}));
  EXPECT_EQ(GradientsReceived(graph, NodeOf(mask)), std::vector<int>{0});
  EXPECT_FALSE(NeedsGradient(graph, NodeOf(first), x));
  EXPECT_TRUE(NeedsGradient(graph, NodeOf(parts), first));
  EXPECT_FALSE(NeedsGradient(graph, NodeOf(mask), last));
}

TEST(OperatorSignature, CountsTheGradientsThatAreAddedUp) {
  GraphBuilder builder("fan-out");
  const Argument first = builder.Linear(builder.Feature("x", {6}), 6, 6);
  const Argument square = builder.Add("aten.mul.Tensor", {first, first}, {6});
  const Argument sum = builder.Add("aten.add.Tensor", {square, first}, {6});
  builder.Loss(sum, {6});
  const Graph graph = builder.Build();
  EXPECT_EQ(GradientsReceived(graph, NodeOf(first)), std::vector<int>{3});
  EXPECT_EQ(SignatureOf(graph, NodeOf(first)),
            "aten.linear.default(float32[s,6], p float32[6,6]', p float32[6]') -> float32[s,6]'''");
  EXPECT_EQ(GradientsReceived(graph, graph.loss()->node), std::vector<int>{1});
}

TEST(OperatorSignature, DependsOnSamplesWhereAShapeOrASizeDoes) {
  GraphBuilder builder("sizes");
  const Argument x = builder.Feature("x", {6});
  const Argument table = builder.Weight("table", {6});
  const Argument doubled = builder.AddWith("aten.mul.Tensor", {table, Number(2)}, {Fixed({6})});
  const Argument sum = builder.Add("aten.add.Tensor", {x, doubled}, {6});
  const Graph graph = builder.Build();
  EXPECT_FALSE(DependsOnSamples(graph, NodeOf(doubled)));
  EXPECT_TRUE(DependsOnSamples(graph, NodeOf(sum)));
}

}  // namespace
}  // namespace stagewright
