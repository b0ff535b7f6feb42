#include "common/cost/backward_moves.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using testing::Batched;
using testing::GraphBuilder;
using testing::NodeOf;
using testing::Number;

constexpr int64_t kSamples = 3;

BackwardMoves Of(const Graph& graph, const Argument& value,
                 Precision precision = Precision::kGraph) {
  const TypedSizes sizes(graph, precision);
  const NodeId id = NodeOf(value);
  return MovesOfBackward(graph, id, sizes, GradientsOfValues(graph)[id.index()], kSamples);
}

// A loss over all of a value, so that every node before it has a gradient.
Graph WithLoss(GraphBuilder& builder, const Argument& value, const std::vector<int64_t>& shape) {
  builder.Loss(value, shape);
  return builder.Build();
}

// A linear layer to `width` columns, of any number of rows.
Argument Rows(GraphBuilder& builder, const std::string& name, int64_t rows, int64_t width) {
  const Argument x = builder.Feature(name, {rows, 64});
  const Argument weight = builder.Weight(name + ".weight", {width, 64});
  const Argument bias = builder.Weight(name + ".bias", {width});
  return builder.Add("aten.linear.default", {x, weight, bias}, {rows, width});
}

TEST(BackwardMoves, GradientsOfAValueThatSeveralNodesReadAreAddedUp) {
  GraphBuilder builder("residual");
  const Argument a = builder.Linear(builder.Feature("x", {64}), 64, 64);
  const Argument b = builder.Linear(a, 64, 64);
  const Argument c = builder.Add("aten.add.Tensor", {b, a}, {64});
  const Argument d = builder.Add("aten.add.Tensor", {c, a}, {64});
  const Graph graph = WithLoss(builder, d, {64});
  EXPECT_EQ(Of(graph, a).input.launches, 2);
  EXPECT_EQ(Of(graph, a).input.bytes, 2 * 3 * 4.0 * 64 * kSamples);
  EXPECT_EQ(Of(graph, b).input.launches, 0);
  EXPECT_EQ(Of(graph, c).input.launches, 0) << "a sum hands its gradient on";
}

TEST(BackwardMoves, ABiasTakesASumOverTheRows) {
  GraphBuilder builder("biases");
  const Argument with = Rows(builder, "x", 16, 32);
  const Argument without =
      builder.Add("aten.linear.default", {with, builder.Weight("w", {32, 32})}, {16, 32});
  const Graph graph = WithLoss(builder, without, {16, 32});
  EXPECT_EQ(Of(graph, with).weight.launches, 1);
  EXPECT_EQ(Of(graph, with).weight.bytes, 4.0 * (kSamples * 16 * 32 + 32));
  EXPECT_EQ(Of(graph, without).weight.launches, 0);
}

TEST(BackwardMoves, ActivationsReadTheGradientAndWhatWasKept) {
  GraphBuilder builder("activation");
  const Argument a = builder.Linear(builder.Feature("x", {64}), 64, 64);
  const Argument b = builder.Add("aten.gelu.default", {a}, {64});
  const Argument c = builder.Add("aten.mul.Tensor", {b, a}, {64});
  const Graph graph = WithLoss(builder, c, {64});
  const double size = 4.0 * 64 * kSamples;
  EXPECT_EQ(Of(graph, b).input.launches, 1);
  EXPECT_EQ(Of(graph, b).input.bytes, 3 * size);
  // Two gradients, each written from that of the result and the other operand.
  EXPECT_EQ(Of(graph, c).input.launches, 2);
  EXPECT_EQ(Of(graph, c).input.bytes, 6 * size);
}

TEST(BackwardMoves, NormsReadTheirInputOnceMoreForTheirWeights) {
  GraphBuilder builder("norm");
  const Argument a = Rows(builder, "x", 8, 64);
  const Argument norm =
      builder.Add("aten.layer_norm.default",
                  {a, Number(64), builder.Weight("w", {64}), builder.Weight("b", {64})}, {8, 64});
  const Graph graph = WithLoss(builder, norm, {8, 64});
  const BackwardMoves moves = Of(graph, norm);
  const double size = 4.0 * 8 * 64 * kSamples;
  EXPECT_EQ(moves.input.launches, 1);
  EXPECT_EQ(moves.weight.launches, 1);
  EXPECT_GE(moves.input.bytes, 3 * size);
  EXPECT_GE(moves.weight.bytes, 2 * size + 2 * 4 * 64);
  EXPECT_LE(moves.weight.bytes, 2.1 * size + 2 * 4 * 64);
}

TEST(BackwardMoves, ViewsCostWhatTheirGradientsAreCopied) {
  GraphBuilder builder("views");
  const Argument a = Rows(builder, "x", 4, 64);
  const Argument turned = builder.Add("aten.transpose.int", {a, Number(1), Number(2)}, {64, 4});
  const Argument one = builder.Add("aten.select.int", {turned, Number(2), Number(0)}, {64});
  const Argument two = builder.Add("aten.select.int", {turned, Number(2), Number(1)}, {64});
  const Argument sum = builder.Add("aten.add.Tensor", {one, two}, {64});
  const Graph graph = WithLoss(builder, sum, {64});
  const double part = 4.0 * 64 * kSamples;
  EXPECT_EQ(Of(graph, one).input.launches, 2);
  EXPECT_EQ(Of(graph, one).input.bytes, (4 + 2) * part) << "zeros, and the part between them";
  EXPECT_EQ(Of(graph, turned).input.bytes, 3 * 4 * part) << "two gradients are added up";
}

TEST(BackwardMoves, WhatTakesATensorApartPutsItsGradientTogether) {
  GraphBuilder builder("unbind");
  const Argument a = Rows(builder, "x", 2, 64);
  const Argument parts =
      builder.AddWith("aten.unbind.int", {a, Number(1)}, {Batched({64}), Batched({64})});
  const Graph graph = WithLoss(builder, parts, {64});
  EXPECT_EQ(Of(graph, parts).input.launches, 1);
  EXPECT_EQ(Of(graph, parts).input.bytes, 2 * 4.0 * 2 * 64 * kSamples);
}

TEST(BackwardMoves, BroadcastOperandsTakeASum) {
  GraphBuilder builder("positions");
  const Argument a = Rows(builder, "x", 8, 64);
  const Argument narrow = Rows(builder, "y", 1, 64);
  const Argument b = builder.Add("aten.add.Tensor", {a, narrow}, {8, 64});
  const Argument c = builder.Add("aten.add.Tensor", {b, builder.Weight("p", {8, 64})}, {8, 64});
  const Graph graph = WithLoss(builder, c, {8, 64});
  const double size = 4.0 * 64 * kSamples;
  EXPECT_EQ(Of(graph, b).input.launches, 1);
  EXPECT_EQ(Of(graph, b).input.bytes, 9 * size);
  EXPECT_EQ(Of(graph, c).weight.launches, 1);
  EXPECT_EQ(Of(graph, c).weight.bytes, 8 * size + 4 * 8 * 64);
}

TEST(BackwardMoves, NothingWithoutABackwardPass) {
  GraphBuilder builder("features");
  const Argument x = builder.Feature("x", {64});
  const Argument a = builder.Add("aten.gelu.default", {x}, {64});
  const Argument frozen =
      builder.Add("aten.linear.default", {a, builder.Weight("w", {64, 64}, false)}, {64});
  const Argument b = builder.Linear(frozen, 64, 64);
  const Graph graph = WithLoss(builder, b, {64});
  for (const Argument& value : {a, frozen}) {
    EXPECT_EQ(Of(graph, value).input.launches, 0);
    EXPECT_EQ(Of(graph, value).weight.launches, 0);
  }
}

}  // namespace
}  // namespace stagewright
