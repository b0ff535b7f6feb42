// Stages that a reader can follow by hand; tests/worker_daemon/executor/executor_memory_test.cc
// compares with what LibTorch takes.
#include "common/memory/stage_memory.h"

#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "tests/support/graph_builder.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright {
namespace {

using testing::GraphBuilder;
using testing::Number;
using testing::Rng;

constexpr Bytes kValue = 4 * 8;         // Eight features of one sample.
constexpr Bytes kLayer = 4 * (64 + 8);  // Weight and bias.

StageMemory Follow(const Graph& graph, int32_t begin, int32_t end, const GivenValues& given,
                   bool split = false, int64_t samples = 1) {
  std::vector<NodeId> nodes;
  for (int32_t v = begin; v < end; ++v) nodes.emplace_back(v);
  const StageTape tape = MakeStageTape(MessageTypes(graph, Precision::kGraph), nodes, given, true);
  return FollowStage(graph, *MakeAnalyticCostModel(graph), tape, samples, true, split);
}

Argument Layer(GraphBuilder& builder, const Argument& x) { return builder.Linear(x, 8, 8); }
Argument Relu(GraphBuilder& builder, const Argument& x) {
  return builder.Add("aten.relu.default", {x}, {8});
}
ValueRef ValueOf(const Argument& argument) { return std::get<ValueRef>(argument.value); }

// Layer, relu, layer, relu | layer, loss.
struct Chain {
  Chain() {
    Argument value = builder.Feature("x", {8});
    for (int layer = 0; layer < 2; ++layer) value = Relu(builder, Layer(builder, value));
    sent = ValueOf(value);
    builder.Loss(Layer(builder, value), {8});
  }
  GraphBuilder builder{"chain"};
  ValueRef sent;
};

TEST(StageMemoryTest, WhatWasSavedGoesNodeByNode) {
  Chain chain;
  const Graph graph = chain.builder.Build();
  const StageMemory first = Follow(graph, 0, 4, {.local = {}, .sent = {chain.sent}});
  // The input and both relus' results.
  EXPECT_EQ(first.saved, 3 * kValue);
  // While the second relu runs its operand is there, too.
  EXPECT_EQ(first.forward, 4 * kValue);
  // While the last relu's result is made nothing else but its operand is.
  EXPECT_EQ(first.forward_only, 3 * kValue);
  // The result sent is a root and stays. The second layer makes the gradient of its operand beside
  // that of its result.
  EXPECT_EQ(first.later.backward, 2 * kValue + kLayer);
  // The first layer's gradients come when those of the second are there; the first relu is gone.
  EXPECT_EQ(first.first.backward, 2 * kLayer);
}

TEST(StageMemoryTest, HalvesOfABackwardPass) {
  Chain chain;
  const Graph graph = chain.builder.Build();
  const StageMemory split = Follow(graph, 0, 4, {.local = {}, .sent = {chain.sent}}, true);
  EXPECT_EQ(split.saved, 3 * kValue);
  // Both layers' operands, and the gradients of their results.
  EXPECT_EQ(split.between, 4 * kValue);
  // The last relu goes before the second layer makes a gradient, the first one stays for the layer.
  EXPECT_EQ(split.input_half, 2 * kValue);
  EXPECT_EQ(split.later.weight_half, kLayer);
  // The second layer's operand goes before the first layer's gradients come.
  EXPECT_EQ(split.first.weight_half, 2 * kLayer - kValue);
}

TEST(StageMemoryTest, AGradientThatComesByMessageLiesInItsBuffer) {
  GraphBuilder builder("end");
  const Argument x = Layer(builder, builder.Feature("x", {8}));
  builder.Loss(Layer(builder, x), {8});
  const Graph graph = builder.Build();
  const std::vector<ValueRef> sent = {ValueOf(x)};
  EXPECT_EQ(Follow(graph, 0, 1, {.local = {}, .sent = sent}, true).between, kValue);
  EXPECT_EQ(Follow(graph, 0, 1, {.local = sent, .sent = {}}, true).between, 2 * kValue);
}

// A skip connection: the value stays while the branch runs, and so does its gradient.
TEST(StageMemoryTest, ValuesAndGradientsLiveUntilTheirLastUse) {
  GraphBuilder builder("skip");
  const Argument x = Layer(builder, builder.Feature("x", {8}));
  const Argument branch = Layer(builder, Layer(builder, Relu(builder, x)));
  const Argument sum = builder.Add("aten.add.Tensor", {x, branch}, {8});
  builder.Loss(Layer(builder, sum), {8});
  const Graph graph = builder.Build();
  const StageMemory memory = Follow(graph, 0, 5, {.local = {}, .sent = {ValueOf(sum)}});
  EXPECT_EQ(memory.saved, 4 * kValue);  // Input, relu, one layer's result, and the root.
  // Before the sum is made: input, x, relu and both results of the branch; then the sum.
  EXPECT_EQ(memory.forward, 6 * kValue);
  // The message is the gradient of x, too, until that of the branch is added to it.
  EXPECT_EQ(memory.later.backward, kValue + kLayer);
}

TEST(StageMemoryTest, GradientsThatAreReturnedBelongToNobodyElse) {
  GraphBuilder builder("received");
  const Argument x = Layer(builder, builder.Feature("x", {8}));
  const Argument y = Layer(builder, builder.Feature("y", {8}));
  const Argument sum = builder.Add("aten.add.Tensor", {x, y}, {8});
  builder.Loss(Layer(builder, sum), {8});
  const Graph graph = builder.Build();
  // The sum alone: both gradients would be the message.
  EXPECT_EQ(Follow(graph, 2, 3, {.local = {}, .sent = {ValueOf(sum)}}).later.backward, 2 * kValue);
}

TEST(StageMemoryTest, PlanningOnlyNodesHoldWhatTheirProfileSays) {
  const Graph graph = testing::TwoProfiledNodes();
  for (bool split : {false, true}) {
    const StageMemory memory = Follow(graph, 0, 2, {}, split, 4);
    EXPECT_EQ(memory.saved, 1000);
    EXPECT_EQ(memory.forward, 1000);
    EXPECT_EQ(memory.later.backward, 0);
    EXPECT_EQ(memory.between, split ? 1000 : 0);
  }
}

// Whatever the graph: nothing is counted that was never taken, and a pass that keeps less takes no
// more.
TEST(StageMemoryTest, FiguresOfRandomGraphsAreSane) {
  Rng rng(5);
  for (int i = 0; i < 200; ++i) {
    const Graph graph = testing::RandomGraph(rng, 20);
    for (bool split : {false, true}) {
      const StageMemory memory = Follow(graph, 0, graph.size(), {}, split, 3);
      EXPECT_GE(memory.saved, 0);
      EXPECT_GE(memory.forward, memory.saved);
      EXPECT_GE(memory.forward, memory.forward_only);
      EXPECT_GE(memory.first.backward, memory.later.backward);
      EXPECT_GE(memory.later.backward, memory.input_half);
      EXPECT_GE(memory.between, 0);
      EXPECT_GE(memory.first.weight_half, memory.later.weight_half);
    }
  }
}

}  // namespace
}  // namespace stagewright
