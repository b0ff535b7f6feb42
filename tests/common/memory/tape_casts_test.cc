// Stages that a reader can follow by hand, in bfloat16.
#include "common/memory/tape_casts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/cost/analytic.h"
#include "common/memory/stage_costs.h"
#include "common/memory/stage_memory.h"
#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using testing::GraphBuilder;

constexpr Bytes kWide = 4 * 8;  // Eight features of one sample.
constexpr Bytes kSmall = 2 * 8;
constexpr Bytes kLayer = 64 + 8;  // Scalars of a weight and a bias.

ValueRef ValueOf(const Argument& argument) { return std::get<ValueRef>(argument.value); }

// Layer, relu, layer, relu, which is sent.
struct Chain {
  Chain() {
    Argument value = builder.Feature("x", {8});
    for (int layer = 0; layer < 2; ++layer)
      value = builder.Add("aten.relu.default", {builder.Linear(value, 8, 8)}, {8});
    sent = ValueOf(value);
    builder.Loss(builder.Linear(value, 8, 8), {8});
  }
  GraphBuilder builder{"chain"};
  ValueRef sent;
};

StageTape TapeOf(const Graph& graph, ValueRef sent) {
  return MakeStageTape(graph, {NodeId(0), NodeId(1), NodeId(2), NodeId(3)},
                       {.local = {}, .sent = {sent}}, true, Precision::kBFloat16);
}

TEST(TapeCasts, CastsWhatANodeTakesAndWhatTheStageGives) {
  const Chain chain;
  const Graph graph = chain.builder.Build();
  const StageTape tape = TapeOf(graph, chain.sent);
  // The input before the first layer, and the last result after it was made.
  ASSERT_EQ(tape.steps.size(), 6u);
  EXPECT_TRUE(tape.steps.front().cast);
  EXPECT_FALSE(tape.steps.front().backward) << "the input has no gradient";
  EXPECT_TRUE(tape.steps.back().cast);
  EXPECT_TRUE(tape.steps.back().backward);
  EXPECT_EQ(tape.values[tape.steps[1].reads.empty() ? 0 : tape.steps[1].reads[0]].dtype,
            DType::kBFloat16);
  const TapeValue& given = tape.values[tape.steps.back().makes[0]];
  EXPECT_EQ(given.dtype, DType::kFloat32);
  EXPECT_TRUE(given.root);
  EXPECT_FALSE(tape.values[tape.steps.back().reads[0]].given);
  EXPECT_EQ(tape.steps[1].cast_gradients, 2 * kLayer);
}

TEST(TapeCasts, WhatIsHeldIsInTheTypesOfTheEngine) {
  const Chain chain;
  const Graph graph = chain.builder.Build();
  const StageMemory memory = FollowStage(graph, *MakeAnalyticCostModel(graph, Precision::kBFloat16),
                                         TapeOf(graph, chain.sent), 1, true, false);
  // The input's copy, both relus' results, and the second in the type in which it is sent.
  EXPECT_EQ(memory.saved, 3 * kSmall + kWide);
  // While the first layer runs: the input, its copy and the layer's result. Later: what is saved
  // and the input, which stays until the pass ends.
  EXPECT_EQ(memory.forward, 3 * kSmall + 2 * kWide);
  // Gradients of the second layer's weights in two bytes, then in four beside them. That of its
  // operand has taken the place of the second relu's result.
  EXPECT_EQ(memory.later.backward, (2 + 4) * kLayer);
}

TEST(TapeCasts, CopiesOfWeightsAreHeldOnce) {
  const Chain chain;
  const Graph graph = chain.builder.Build();
  ProgramStage stage;
  stage.nodes = {NodeId(0), NodeId(1), NodeId(2), NodeId(3)};
  EXPECT_EQ(CastBytesOf(graph, stage, Precision::kBFloat16), 2 * 2 * kLayer);
  EXPECT_EQ(CastBytesOf(graph, stage, Precision::kGraph), 0);
}

TEST(TapeCasts, EachReaderOfAWideValueSavesACopyOfItsOwn) {
  GraphBuilder builder("norm");
  const Argument x = builder.Linear(builder.Feature("x", {8}), 8, 8);
  const Argument norm = builder.Add("aten.layer_norm.default", {x}, {8});
  const Argument a = builder.Linear(norm, 8, 8), b = builder.Linear(norm, 8, 8);
  const Argument sum = builder.Add("aten.add.Tensor", {a, b}, {8});
  builder.Loss(sum, {8});
  const Graph graph = builder.Build();
  std::vector<NodeId> nodes = {NodeId(1), NodeId(2), NodeId(3)};
  const StageTape tape = MakeStageTape(
      graph, nodes, {.local = {}, .sent = {ValueOf(a), ValueOf(b)}}, true, Precision::kBFloat16);
  const StageMemory memory =
      FollowStage(graph, *MakeAnalyticCostModel(graph, Precision::kBFloat16), tape, 1, true, false);
  // Two copies of what the norm gives, which itself goes; mean and deviation; both results as sent.
  EXPECT_EQ(memory.saved, 2 * kSmall + 2 * 4 + 2 * kWide);
}

}  // namespace
}  // namespace stagewright
