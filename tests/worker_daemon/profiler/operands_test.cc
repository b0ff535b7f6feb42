#include "worker_daemon/profiler/operands.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "common/cost/measured/operator_signature.h"
#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using testing::Batched;
using testing::GraphBuilder;
using testing::NodeOf;
using testing::Number;

at::Tensor Operand(const Graph& graph, const Argument& node, size_t i, int64_t samples = 4) {
  const auto operands =
      MakeOperands(graph, NodeOf(node), samples, FindIndexBounds(graph), at::kCPU);
  EXPECT_TRUE(operands.ok()) << operands.status();
  return TensorOf(*operands, graph.node(NodeOf(node)).args[i]);
}

TEST(Operands, HaveTheGraphsTypesAndShapes) {
  GraphBuilder builder("types");
  const Argument x = builder.Feature("x", {3}, DType::kFloat64);
  const Argument flag = builder.Feature("flag", {3}, DType::kBool);
  const Argument weight = builder.Weight("w", {3});
  const Argument picked = builder.Add("aten.where.self", {flag, x, weight}, {3});
  const Graph graph = builder.Build();
  EXPECT_EQ(Operand(graph, picked, 0).scalar_type(), at::kBool);
  EXPECT_TRUE(Operand(graph, picked, 0).all().item<bool>());
  EXPECT_EQ(Operand(graph, picked, 1).scalar_type(), at::kDouble);
  EXPECT_EQ(Operand(graph, picked, 1).sizes(), (std::vector<int64_t>{4, 3}));
  EXPECT_GT(Operand(graph, picked, 1).min().item<double>(), 0);
  EXPECT_LT(Operand(graph, picked, 1).max().item<double>(), 1);
  EXPECT_FALSE(Operand(graph, picked, 1).requires_grad());
  EXPECT_TRUE(Operand(graph, picked, 2).requires_grad());
}

TEST(Operands, ComeAsMixedPrecisionGivesThem) {
  GraphBuilder builder("mixed");
  const Argument first = builder.Linear(builder.Feature("x", {3}), 3, 3);
  const Argument flat =
      builder.Add("aten.view.default", {first, {Argument::List{{SymInt{1, 0}}, Number(3)}}}, {3});
  const Argument second = builder.Linear(flat, 3, 3);
  const Graph graph = builder.Build();
  const auto types = MixedTypes(graph, Precision::kBFloat16);
  const auto operand = [&](const Argument& node) {
    const auto operands =
        MakeOperands(graph, NodeOf(node), 4, FindIndexBounds(graph), at::kCPU, types);
    EXPECT_TRUE(operands.ok()) << operands.status();
    return TensorOf(*operands, graph.node(NodeOf(node)).args[0]).scalar_type();
  };
  EXPECT_EQ(operand(first), at::kFloat) << "the data's";
  EXPECT_EQ(operand(second), at::kBFloat16) << "a product's result, seen through a view";
}

TEST(Operands, IndicesAreThoseThatTheOperatorTakes) {
  GraphBuilder builder("indices");
  const Argument ids = builder.Feature("ids", {50}, DType::kInt64);
  const Argument flat = builder.AddWith("aten.view.default", {ids, {Argument::List{Number(-1)}}},
                                        {{DType::kInt64, {SymInt{50, 0}}}});
  const Argument rows =
      builder.AddWith("aten.embedding.default", {builder.Weight("table", {7, 2}), flat},
                      {{DType::kFloat32, {SymInt{50, 0}, SymInt{0, 2}}}});
  const Argument next =
      builder.AddWith("aten.add.Tensor", {ids, Number(1)}, {Batched({50}, DType::kInt64)});
  const Graph graph = builder.Build();
  const at::Tensor drawn = Operand(graph, rows, 1);
  EXPECT_EQ(drawn.numel(), 200);
  EXPECT_EQ(drawn.min().item<int64_t>(), 0);
  EXPECT_EQ(drawn.max().item<int64_t>(), 6);
  EXPECT_EQ(Operand(graph, next, 0).max().item<int64_t>(), 0);
}

TEST(Operands, ViewsLieAsViewsDo) {
  GraphBuilder builder("views");
  const Argument first = builder.Linear(builder.Feature("x", {6}), 6, 6);
  const Argument grid = builder.Add(
      "aten.view.default", {first, {Argument::List{{SymInt{1, 0}}, Number(2), Number(3)}}}, {2, 3});
  const Argument turned = builder.Add("aten.transpose.int", {grid, Number(1), Number(2)}, {3, 2});
  const Argument last = builder.Add("aten.relu.default", {turned}, {3, 2});
  const Graph graph = builder.Build();
  const at::Tensor operand = Operand(graph, last, 0);
  EXPECT_EQ(operand.sizes(), (std::vector<int64_t>{4, 3, 2}));
  EXPECT_EQ(operand.strides(), (std::vector<int64_t>{6, 1, 3}));
}

}  // namespace
}  // namespace stagewright
