#include "common/cost/operations/recurrence.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/cost/analytic.h"
#include "common/cost/operations/flops.h"
#include "common/cost/retention.h"
#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using testing::Batched;
using testing::GraphBuilder;
using testing::NodeOf;
using testing::Number;

constexpr int64_t kSteps = 10, kIn = 16, kState = 32;

class RecurrenceTest : public ::testing::Test {
 protected:
  // Weights of a layer: for the inputs, for the states, and both biases.
  void AddCell(const std::string& name, int64_t gates, int64_t in, Argument::List& weights) {
    weights.push_back(builder_.Weight(name + ".ih", {gates * kState, in}));
    weights.push_back(builder_.Weight(name + ".hh", {gates * kState, kState}));
    weights.push_back(builder_.Weight(name + ".bi", {gates * kState}));
    weights.push_back(builder_.Weight(name + ".bh", {gates * kState}));
  }
  Argument Layers(const std::string& target, int64_t gates, int layers) {
    const Argument x = builder_.Feature("x", {kSteps, kIn});
    const Argument state = builder_.Feature("state", {kState});
    Argument::List weights;
    for (int i = 0; i < layers; ++i)
      AddCell(std::to_string(i), gates, i == 0 ? kIn : kState, weights);
    const Argument states =
        gates == 4 ? Argument{Argument::List{state, state}} : Argument{Argument::List{state}};
    return builder_.AddWith(target, {x, states, {weights}, {true}, Number(layers)},
                            {Batched({kSteps, kState}), Batched({kState})});
  }
  Recurrence Of(const Argument& node, int64_t samples) {
    const Graph graph = builder_.Build();
    return RecurrenceOf(graph, graph.node(NodeOf(node)), samples);
  }

  GraphBuilder builder_{"recurrence"};
};

TEST_F(RecurrenceTest, StatesAreMultipliedStepByStep) {
  const Argument y = Layers("aten.lstm.input", 4, 1);
  const Recurrence found = Of(y, 3);
  EXPECT_EQ(found.steps, kSteps);
  EXPECT_EQ(found.input_flops, 2.0 * 3 * kSteps * 4 * kState * kIn);
  EXPECT_EQ(found.step_flops, 2.0 * 3 * 4 * kState * kState);
  EXPECT_EQ(ForwardFlops(builder_.Build(), NodeOf(y), 3), found.flops());
  EXPECT_EQ(Of(y, 0).flops(), 0);
}

TEST_F(RecurrenceTest, LayersFollowEachOther) {
  const Recurrence found = Of(Layers("aten.gru.input", 3, 2), 1);
  EXPECT_EQ(found.steps, 2 * kSteps);
  EXPECT_EQ(found.flops(), 2.0 * kSteps * 3 * kState * (kIn + 3 * kState));
}

TEST_F(RecurrenceTest, ACellIsOneStep) {
  const Argument x = builder_.Feature("x", {kIn});
  const Argument h = builder_.Feature("h", {kState});
  Argument::List weights;
  AddCell("cell", 1, kIn, weights);
  const Argument y = builder_.Add("aten.rnn_tanh_cell.default",
                                  {x, h, weights[0], weights[1], weights[2], weights[3]}, {kState});
  const Recurrence found = Of(y, 5);
  EXPECT_EQ(found.steps, 1);
  EXPECT_EQ(found.flops(), 2.0 * 5 * kState * (kIn + kState));
}

TEST_F(RecurrenceTest, PackedSequencesTellTheirStepsByTheirBatches) {
  const Argument data = builder_.Feature("data", {kIn});
  const Argument batches = builder_.Weight("batches", {7}, /*trainable=*/false);
  const Argument state = builder_.Feature("state", {2, kState});
  Argument::List weights;
  AddCell("cell", 3, kIn, weights);
  const Argument y = builder_.AddWith("aten.gru.data", {data, batches, state, {weights}},
                                      {Batched({kState}), Batched({kState})});
  const Recurrence found = Of(y, 70);
  EXPECT_EQ(found.steps, 7);
  EXPECT_EQ(found.flops(), 2.0 * 70 * 3 * kState * (kIn + kState));
}

TEST_F(RecurrenceTest, WithoutItsWeightsItIsNoWork) {
  const Argument x = builder_.Feature("x", {kSteps, kIn});
  EXPECT_EQ(Of(builder_.Add("aten.lstm.input", {x}, {kSteps, kState}), 3).flops(), 0);
}

// A step's product waits for the one before: neither a faster device nor fewer samples make many
// steps shorter than as many launches.
TEST_F(RecurrenceTest, TakesAtLeastALaunchPerStepInEitherPass) {
  const Argument y = Layers("aten.lstm.input", 4, 2);
  const Graph graph = builder_.Build();
  const auto costs = MakeAnalyticCostModel(graph);
  DeviceKind kind;
  kind.flops_per_second = 1e15;
  kind.memory_bytes_per_second = 1e15;
  kind.kernel_overhead = kMicrosecond;
  const OperatorTime time = costs->Time(NodeOf(y), kind, 1);
  EXPECT_GE(time.forward, 2 * kSteps * kMicrosecond);
  EXPECT_GE(time.backward_weight, 2 * kSteps * kMicrosecond);
}

TEST_F(RecurrenceTest, KeepsItsGatesForTheBackwardPass) {
  const Argument y = Layers("aten.lstm.input", 4, 1);
  builder_.Loss(y, {kSteps, kState});
  const Graph graph = builder_.Build();
  EXPECT_EQ(HiddenBytes(graph, NodeOf(y), 3), 17 * 4 * 3 * kSteps * kState);
}

}  // namespace
}  // namespace stagewright
