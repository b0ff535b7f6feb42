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
  return MakeStageTape(MessageTypes(graph, Precision::kBFloat16),
                       {NodeId(0), NodeId(1), NodeId(2), NodeId(3)}, {.local = {}, .sent = {sent}},
                       true);
}

TEST(TapeCasts, CastsWhatANodeTakesAndNothingThatTheStageSends) {
  const Chain chain;
  const Graph graph = chain.builder.Build();
  const StageTape tape = TapeOf(graph, chain.sent);
  // The input before the first layer.
  ASSERT_EQ(tape.steps.size(), 5u);
  EXPECT_TRUE(tape.steps.front().cast);
  EXPECT_FALSE(tape.steps.front().backward) << "the input has no gradient";
  EXPECT_FALSE(tape.steps.back().cast);
  EXPECT_EQ(tape.values[tape.steps[1].reads.empty() ? 0 : tape.steps[1].reads[0]].dtype,
            DType::kBFloat16);
  const TapeValue& given = tape.values[tape.steps.back().makes[0]];
  EXPECT_EQ(given.dtype, DType::kBFloat16);
  EXPECT_TRUE(given.root);
  EXPECT_EQ(tape.steps[1].cast_gradients, 2 * kLayer);
}

TEST(TapeCasts, WhatIsHeldIsInTheTypesOfTheEngine) {
  const Chain chain;
  const Graph graph = chain.builder.Build();
  const StageMemory memory = FollowStage(graph, *MakeAnalyticCostModel(graph, Precision::kBFloat16),
                                         TapeOf(graph, chain.sent), 1, true, false);
  // The input's copy and both relus' results.
  EXPECT_EQ(memory.saved, 3 * kSmall);
  // While the second relu runs: what is saved, its operand, and the input, which stays until the
  // pass ends.
  EXPECT_EQ(memory.forward, 4 * kSmall + kWide);
  // Gradients of the second layer's weights in two bytes, then in four beside them, and that of
  // its operand: the second relu's result, from which the pass starts, stays.
  EXPECT_EQ(memory.later.backward, (2 + 4) * kLayer + kSmall);
}

// What the last stage gets in the smaller type it computes with in that, and reports in the other.
TEST(TapeCasts, TheReportIsCastWhenAllHasRun) {
  GraphBuilder builder("report");
  const Argument x = builder.Linear(builder.Feature("x", {8}), 8, 8);
  const Argument head = builder.Linear(x, 8, 8);
  builder.Loss(head, {8});
  builder.data.prediction = ValueOf(head);
  const Graph graph = builder.Build();
  const StageTape tape =
      MakeStageTape(MessageTypes(graph, Precision::kBFloat16), {NodeId(1), NodeId(2)}, {}, true);
  ASSERT_EQ(tape.steps.size(), 4u) << "the head, its result for the loss, the loss, the report";
  EXPECT_EQ(tape.values[tape.steps[0].reads[0]].dtype, DType::kBFloat16);
  EXPECT_FALSE(tape.steps[0].cast);
  EXPECT_TRUE(tape.steps[3].cast);
  EXPECT_FALSE(tape.steps[3].backward);
  const TapeValue& report = tape.values[tape.steps[3].makes[0]];
  EXPECT_EQ(report.dtype, DType::kFloat32);
  EXPECT_TRUE(report.given);
  EXPECT_FALSE(report.root);
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
  const StageTape tape = MakeStageTape(MessageTypes(graph, Precision::kBFloat16), nodes,
                                       {.local = {}, .sent = {ValueOf(a), ValueOf(b)}}, true);
  const StageMemory memory =
      FollowStage(graph, *MakeAnalyticCostModel(graph, Precision::kBFloat16), tape, 1, true, false);
  // The copy of what came that the norm takes; two of what it gives, which itself goes; mean and
  // deviation; both results.
  EXPECT_EQ(memory.saved, kWide + 2 * kSmall + 2 * 4 + 2 * kSmall);
}

}  // namespace
}  // namespace stagewright
