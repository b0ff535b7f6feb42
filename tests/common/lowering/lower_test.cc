// Small programs that a reader can check by hand; lower_property_test.cc has the rest.
#include "common/lowering/lower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "common/program/text.h"
#include "common/strategy/orders.h"
#include "common/validation/validate.h"
#include "tests/support/fake_driver.h"
#include "tests/support/graph_builder.h"
#include "tests/support/layer_graphs.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::ChainGraph;
using testing::GraphBuilder;
using ::testing::HasSubstr;
using testing::LinearGraph;
using testing::MakeStages;

// A value, a parameter and a gradient have 4 bytes a feature.
absl::StatusOr<Program> LowerStages(const Graph& graph, const Strategy& strategy,
                                    bool training = true) {
  const auto costs = MakeAnalyticCostModel(graph);
  auto program = Lower(graph, strategy, *costs, {Optimizer::kAdam, training});
  if (program.ok()) {
    EXPECT_EQ(Validate(*program, {}), absl::OkStatus());
  }
  return program;
}

TEST(Lower, ChainOfTwoStages) {
  const Graph graph = ChainGraph(2);
  const Program program =
      *LowerStages(graph, MakeStages(graph, 4, {{{0}, {0}, 2}, {{1, 2}, {1}, 2}}));
  EXPECT_EQ(ToText(program), R"(program 1
batch samples=4 training=1
stage 0 nodes=0 replicated=- devices=0 micro_batch=2 backward=1
stage 1 nodes=1-2 replicated=- devices=1 micro_batch=2 backward=1
channel 0 stages=0>1 devices=0>1 values=0.0 gradients=0.0 bytes=4/4 backward=1
device 0 resident=28
body:
0 F0[0,2) +16
1 SA0[0,2)@0 <0
2 RG0[0,2)@0 <0
3 F0[2,4) +16
4 SA0[2,4)@0 <3
5 RG0[2,4)@0 <3
6 B0[0,2) <2 +4 -16
7 B0[2,4) <5 +4 -20
8 OS0 <7 -4
device 1 resident=28
body:
0 RA1[0,2)@0
1 RA1[2,4)@0
2 F1[0,2) <0 +36 -16
3 B1[0,2) +12 -20
4 SG1[0,2)@0 <3 -8
5 F1[2,4) <1 +36 -16
6 B1[2,4) +12 -24
7 SG1[2,4)@0 <6 -8
8 OS1 <6 -4
)");
  // Parameter and moments, buffers of two gradients, two micro-batches with input and output, and
  // the gradient of the parameter.
  EXPECT_EQ(PeakMemory(program.devices[0]), 12 + 2 * 8 + 2 * 16 + 4);
}

TEST(Lower, ReplicasAndMicroBatchesMeetInIntersections) {
  const Graph graph = ChainGraph(2);
  const Program program =
      *LowerStages(graph, MakeStages(graph, 4, {{{0}, {0, 1}, 2}, {{1, 2}, {2}, 4}}));
  EXPECT_EQ(ToText(program), R"(program 1
batch samples=4 training=1
stage 0 nodes=0 replicated=- devices=0-1 micro_batch=2 backward=1
stage 1 nodes=1-2 replicated=- devices=2 micro_batch=4 backward=1
channel 0 stages=0>1 devices=0>2 values=0.0 gradients=0.0 bytes=4/4 backward=1
channel 1 stages=0>1 devices=1>2 values=0.0 gradients=0.0 bytes=4/4 backward=1
reduction 0 stages=0 devices=0-1 parameters=0 bytes=4
device 0 resident=20
body:
0 F0[0,1) +8
1 SA0[0,1)@0 <0
2 RG0[0,1)@0 <0
3 F0[2,3) +8
4 SA0[2,3)@0 <3
5 RG0[2,3)@0 <3
6 B0[0,1) <2 +4 -8
7 B0[2,3) <5 +4 -12
8 AR0@0 <7
9 OS0 <7,8 -4
device 1 resident=20
body:
0 F0[1,2) +8
1 SA0[1,2)@1 <0
2 RG0[1,2)@1 <0
3 F0[3,4) +8
4 SA0[3,4)@1 <3
5 RG0[3,4)@1 <3
6 B0[1,2) <2 +4 -8
7 B0[3,4) <5 +4 -12
8 AR0@0 <7
9 OS0 <7,8 -4
device 2 resident=28
body:
0 RA1[0,1)@0
1 RA1[1,2)@1
2 RA1[2,3)@0
3 RA1[3,4)@1
4 F1[0,4) <0,1,2,3 +84 -32
5 B1[0,4) +20 -52
6 SG1[0,1)@0 <5 -4
7 SG1[1,2)@1 <5 -4
8 SG1[2,3)@0 <5 -4
9 SG1[3,4)@1 <5 -4
10 OS1 <5 -4
)");
}

TEST(Lower, StagesOfOneDeviceHandTensorsOver) {
  const Graph graph = ChainGraph(2);
  const Program program =
      *LowerStages(graph, MakeStages(graph, 4, {{{0}, {0}, 2}, {{1, 2}, {0}, 2}}));
  ASSERT_EQ(program.devices.size(), 1u);
  EXPECT_TRUE(program.channels[0].local());
  EXPECT_THAT(ToText(program), HasSubstr(R"(
0 F0[0,2) +16
1 F1[0,2) <0 +36 -16
2 B1[0,2) +12 -20
3 F0[2,4) +16
4 B0[0,2) <2 +4 -24
5 F1[2,4) <3 +36 -16
6 B1[2,4) +12 -24
7 B0[2,4) <6 +4 -28
8 OS1 <6 -4
9 OS0 <7 -4
)"));
}

TEST(Lower, ForwardOnlyProgramsKeepOutputsUntilTheyAreSent) {
  const Graph graph = ChainGraph(2);
  const Program program =
      *LowerStages(graph, MakeStages(graph, 4, {{{0}, {0}, 2}, {{1, 2}, {1}, 2}}), false);
  EXPECT_THAT(ToText(program), HasSubstr(R"(
device 0 resident=4
body:
0 F0[0,2) +16 -8
1 SA0[0,2)@0 <0 -8
2 F0[2,4) +16 -8
3 SA0[2,4)@0 <2 -8
device 1 resident=20
body:
0 RA1[0,2)@0
1 RA1[2,4)@0
2 F1[0,2) <0 +36 -36
3 F1[2,4) <1 +36 -36
)"));
}

TEST(Lower, RecomputationKeepsOnlyInputsAndOutgoingMessages) {
  const Graph graph = ChainGraph(3);
  Strategy strategy = MakeStages(graph, 4, {{{0}, {0}, 2}, {{1}, {1}, 2}, {{2, 3}, {2}, 2}});
  strategy.stages[1].recompute = true;
  const Program program = *LowerStages(graph, strategy);
  EXPECT_THAT(ToText(program), HasSubstr(R"(
device 1 resident=44
body:
0 RA1[0,2)@0
1 RA1[2,4)@0
2 F1[0,2) <0 +8
3 SA1[0,2)@1 <2 -8
4 RG1[0,2)@1 <2
5 F1[2,4) <1 +8
6 SA1[2,4)@1 <5 -8
7 R1[0,2) +8
8 RG1[2,4)@1 <7
9 B1[0,2) <4 +12 -8
)"));
}

TEST(Lower, OutputsThatNoNodeSavesAreHeldAsRootsOfTheBackwardPass) {
  GraphBuilder builder("sum");
  const Argument x = builder.Feature("x", {4});
  const Argument a = builder.Linear(x, 4, 4);                                         // 0
  const Argument v = builder.Add("aten.view.default", {a, testing::Number(4)}, {4});  // 1: of 0
  const Argument b = builder.Add("aten.add.Tensor", {a, v}, {4});                     // 2
  builder.Loss(builder.Linear(b, 4, 4), {4});
  const Graph graph = builder.Build();
  Strategy strategy = MakeStages(graph, 2, {{{0, 1}, {0}, 2}, {{2, 3, 4}, {1}, 2}});
  // The product's result is 32 bytes of which the view has none of its own; the sum needs neither.
  // With it the product's operand is kept. Their two gradients are added in memory of their own and
  // give 80 bytes for the parameters.
  const Program kept = *LowerStages(graph, strategy);
  EXPECT_THAT(ToText(kept), HasSubstr("0 F0[0,2) +64\n"));
  EXPECT_THAT(ToText(kept), HasSubstr("B0[0,2) <2 +112 -96\n"));
  strategy.stages[0].recompute = true;
  EXPECT_THAT(ToText(*LowerStages(graph, strategy)), HasSubstr("R0[0,2) +64\n"));
}

TEST(Lower, SequentialChainsWithoutDataExchangeEmptyMessages) {
  const Graph graph = LinearGraph({{}, {}, {0, 1}});
  const Program program = *LowerStages(
      graph,
      MakeStages(graph, 2, {{{0}, {0}}, {{1}, {1}}, {{2, 3}, {2}}}, StrategyKind::kSequential));
  const Channel& chain = program.channels[0];
  EXPECT_EQ(chain.from, StageId(0));
  EXPECT_EQ(chain.to, StageId(1));
  EXPECT_TRUE(chain.values.empty());
  EXPECT_TRUE(chain.gradient_values.empty());
  EXPECT_TRUE(chain.has_gradient);
  EXPECT_EQ(chain.activation_bytes_per_sample, 0);
  EXPECT_THAT(ToText(program), HasSubstr("RA1[0,1)@0"));
}

TEST(Lower, BranchesWithoutTrainingHaveNoBackwardAndNoGradients) {
  GraphBuilder builder("frozen");
  const Argument x = builder.Feature("x", {1});
  const Argument frozen =
      builder.Add("aten.linear.default", {x, builder.Weight("frozen", {1, 1}, false)}, {1});  // 0
  const Argument trained = builder.Linear(x, 1, 1);                                           // 1
  builder.Loss(builder.Linear(builder.Add("aten.add.Tensor", {frozen, trained}, {1}), 1, 1), {1});
  const Graph graph = builder.Build();
  const Program program =
      *LowerStages(graph, MakeStages(graph, 2, {{{0}, {0}}, {{1}, {1}}, {{2, 3, 4}, {2}}}));
  EXPECT_FALSE(program.stages[0].has_backward);
  EXPECT_FALSE(program.channels[0].has_gradient);
  EXPECT_TRUE(program.channels[1].has_gradient);
  EXPECT_THAT(ToText(program), HasSubstr(R"(body:
0 F0[0,1) +8 -4
1 SA0[0,1)@0 <0 -4
2 F0[1,2) +8 -4
3 SA0[1,2)@0 <2 -4
device 1)"));
}

TEST(Lower, WhatTheLossDoesNotReadHasNoBackward) {
  GraphBuilder builder("prediction");
  const Argument x = builder.Feature("x", {1});
  const Argument shared = builder.Linear(x, 1, 1);                                 // 0
  const Argument prediction = builder.Add("aten.sigmoid.default", {shared}, {1});  // 1
  builder.Loss(shared, {1});                                                       // 2
  builder.data.prediction = std::get<ValueRef>(prediction.value);
  const Graph graph = builder.Build();
  const Program program =
      *LowerStages(graph, MakeStages(graph, 2, {{{0}, {0}}, {{1}, {1}}, {{2}, {2}}}));
  EXPECT_FALSE(program.stages[1].has_backward);
  EXPECT_FALSE(program.channels[0].has_gradient);
  EXPECT_TRUE(program.channels[1].has_gradient);
}

TEST(Lower, TiedParametersAreSummedOverTheirStagesInOneOrder) {
  GraphBuilder builder("tied");
  const Argument tied = builder.Weight("tied", {1, 1});
  const Argument x = builder.Feature("x", {1});
  const Argument first = builder.Add("aten.linear.default", {x, tied}, {1});
  const Argument second =
      builder.Add("aten.linear.default", {first, builder.Weight("own", {1, 1})}, {1});
  builder.Loss(builder.Add("aten.linear.default", {second, tied}, {1}), {1});
  const Graph graph = builder.Build();
  const Program program = *LowerStages(
      graph, MakeStages(graph, 4, {{{0}, {0, 1}, 2}, {{1}, {2, 3}, 2}, {{2, 3}, {3}, 2}}));
  ASSERT_EQ(program.reductions.size(), 2u);
  // The later stage finishes its backward passes first.
  EXPECT_THAT(program.reductions[0].devices, ::testing::ElementsAre(DeviceId(2), DeviceId(3)));
  EXPECT_THAT(program.reductions[0].parameters, ::testing::ElementsAre(ParameterId(1)));
  EXPECT_THAT(program.reductions[1].devices,
              ::testing::ElementsAre(DeviceId(0), DeviceId(1), DeviceId(3)));
  EXPECT_THAT(program.reductions[1].parameters, ::testing::ElementsAre(ParameterId(0)));
  EXPECT_EQ(program.reductions[1].bytes, 4);
}

TEST(Lower, ProfiledNodesHaveSizesFromTheirProfile) {
  const Graph graph = testing::TwoProfiledNodes();
  const Program program =
      *LowerStages(graph, MakeStages(graph, 4, {{{0}, {0, 1}, 2}, {{1}, {2}, 2}}));
  EXPECT_EQ(program.channels[0].activation_bytes_per_sample, 125);
  EXPECT_EQ(program.channels[0].gradient_bytes_per_sample, 125);
  ASSERT_EQ(program.reductions.size(), 1u);
  EXPECT_EQ(program.reductions[0].bytes, 400);
  EXPECT_EQ(program.devices[0].resident, 1600);  // Parameter, gradient, two moments.
}

// Linear, relu, linear, relu, loss on one device, for one sample: the input half and then the
// weight half.
std::vector<ProgramAction> SplitChain(int64_t wide) {
  GraphBuilder builder("split");
  const Argument first = builder.Linear(builder.Feature("x", {4}), 4, 4);
  const Argument hidden = builder.Add("aten.relu.default", {first}, {4});
  const Argument second = builder.Linear(hidden, 4, wide);
  builder.Loss(builder.Add("aten.relu.default", {second}, {wide}), {wide});
  const Graph graph = builder.Build();
  Strategy strategy = MakeStages(graph, 1, {{{0, 1, 2, 3, 4}, {0}}});
  SetOrders(graph,
            {{DeviceId(0),
              {{StageId(0), Pass::kForward, 0},
               {StageId(0), Pass::kBackwardInput, 0},
               {StageId(0), Pass::kBackwardWeight, 0}}}},
            strategy);
  return LowerStages(graph, strategy)->devices[0].body;
}

// Input and first relu (16 bytes each) are read by linear maps and stay, as do the gradients of
// both maps (16 and 4 * wide); the second relu and the target, which the loss saves, go.
TEST(Lower, InputHalvesLeaveWhatWeightHalvesRead) {
  const auto body = SplitChain(2);
  EXPECT_EQ(body[0].acquire - body[0].release, 16 + 16 + 8 + 8);
  // The gradient of the loss's operand takes the place of the target, the next one that of the
  // second relu; then come the gradients of the second map's operand and the first map's result.
  EXPECT_EQ(body[1].acquire, 8 + 16 + 16 - 8 - 8);
  EXPECT_EQ(body[1].release - body[1].acquire, 48 - (16 + 16 + 16 + 8));
  const Bytes parameters = 4 * (4 * 4 + 4 + 4 * 2 + 2);
  EXPECT_EQ(body[2].release - body[2].acquire, 16 + 16 + 16 + 8 - parameters);
}

TEST(Lower, GradientsBetweenHalvesMayBeLargerThanWhatWasSaved) {
  const auto body = SplitChain(100);
  EXPECT_EQ(body[0].acquire - body[0].release, 16 + 16 + 400 + 400);
  EXPECT_EQ(body[1].acquire, 4 + 400);  // The gradient of the loss, too.
  EXPECT_EQ(body[1].release - body[1].acquire, 832 - (16 + 16 + 16 + 400));
}

TEST(Lower, NamesTensorsThatCannotBeSplit) {
  GraphBuilder builder("transposed");
  const Argument x = builder.Feature("x", {1});
  const Argument turned = builder.AddWith("aten.t.default", {builder.Linear(x, 1, 1)},
                                          {TensorMeta{DType::kFloat32, {{0, 1}, {1, 0}}}});
  builder.Loss(builder.Add("aten.t.default", {turned}, {1}), {1});
  const Graph graph = builder.Build();
  const auto lower = [&](int64_t first, int64_t second) {
    return LowerStages(graph, MakeStages(graph, 4, {{{0, 1}, {0}, first}, {{2, 3}, {1}, second}}))
        .status();
  };
  EXPECT_EQ(lower(2, 2), absl::OkStatus());
  const absl::Status status = lower(2, 4);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("output 0 of node \"n1\" does not have its samples side by side"));
}

// Figures 2 and 5 of GraphPipe, by what runs: the most samples between forward and backward.
std::vector<int64_t> MostInFlight(const Graph& graph, const Strategy& strategy) {
  testing::Rng rng(1);
  return testing::RunWithRandomDelays(*LowerStages(graph, strategy), rng, 10).most_in_flight;
}

TEST(Lower, Figure2HoldsTwoMicroBatchesInsteadOfFour) {
  const Graph graph = LinearGraph({{}, {}, {}, {0, 1, 2}});
  const std::vector<testing::StageSpec> specs = {{{0}, {0}}, {{1}, {1}}, {{2}, {2}}, {{3, 4}, {3}}};
  EXPECT_THAT(MostInFlight(graph, MakeStages(graph, 8, specs)), ::testing::ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(MostInFlight(graph, MakeStages(graph, 8, specs, StrategyKind::kSequential)),
              ::testing::ElementsAre(4, 3, 2, 1));
}

TEST(Lower, Figure5HoldsTenSamplesInsteadOfTwelve) {
  const Graph graph = ChainGraph(3);
  EXPECT_THAT(
      MostInFlight(graph, MakeStages(graph, 32, {{{0}, {0}, 4}, {{1}, {1}, 4}, {{2, 3}, {2}, 4}})),
      ::testing::ElementsAre(12, 8, 4));
  EXPECT_THAT(
      MostInFlight(graph, MakeStages(graph, 32, {{{0}, {0}, 1}, {{1}, {1}, 2}, {{2, 3}, {2}, 4}})),
      ::testing::ElementsAre(10, 8, 4));
}

}  // namespace
}  // namespace stagewright
