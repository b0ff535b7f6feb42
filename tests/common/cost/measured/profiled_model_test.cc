#include "common/cost/measured/profiled_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/cost/analytic.h"
#include "common/cost/measured/operator_signature.h"
#include "tests/support/graph_builder.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright {
namespace {

using testing::GraphBuilder;
using ::testing::HasSubstr;
using testing::NodeOf;
using testing::RandomGraph;
using testing::Rng;
using testing::Uniform;

const DeviceKind kKind{"cpu", 1e12, 1e11, 1000, 0};
const DeviceKind kOther{"gpu", 1e12, 1e11, 1000, 0};
const ProfiledDevice kDevice{"cpu", "torch, 1 thread"};

struct Model {
  Graph graph;
  NodeId first, tanh, second, third;
};

// linear -> tanh -> linear of another size -> linear of a third size -> loss.
Model Perceptron() {
  GraphBuilder builder("perceptron");
  const Argument first = builder.Linear(builder.Feature("x", {8}), 8, 16);
  const Argument tanh = builder.Add("aten.tanh.default", {first}, {16});
  const Argument second = builder.Linear(tanh, 16, 32);
  const Argument third = builder.Linear(second, 32, 4);
  builder.Loss(third, {4});
  return {builder.Build(), NodeOf(first), NodeOf(tanh), NodeOf(second), NodeOf(third)};
}

std::unique_ptr<CostModel> Profiled(const Graph& graph, const OperatorProfile& profile,
                                    Precision precision = Precision::kGraph) {
  const DeviceKind kinds[] = {kKind};
  return MakeProfiledCostModel(graph, kinds, profile, MakeAnalyticCostModel(graph, precision));
}

TEST(ProfiledModel, IsExactAtMeasuredSizesAndInterpolates) {
  const Model model = Perceptron();
  OperatorProfile profile;
  profile.devices[kDevice][SignatureOf(model.graph, model.tanh)] = {
      "2026-11-22", {{1, 100, 60, 60, 0, 0, 0}, {4, 160, 80, 50, 30, 0, 0}}};
  const auto costs = Profiled(model.graph, profile);
  const OperatorTime at1 = costs->Time(model.tanh, kKind, 1);
  EXPECT_EQ(at1.forward, 100);
  EXPECT_EQ(at1.backward, 55);  // 60 and 50 are noise around one value.
  const OperatorTime at2 = costs->Time(model.tanh, kKind, 2);
  EXPECT_EQ(at2.forward, 120);
  EXPECT_EQ(at2.backward_input, 55);
  EXPECT_EQ(at2.backward_weight, 10);
  EXPECT_EQ(at2.backward, 65);
  EXPECT_EQ(costs->Time(model.tanh, kKind, 8).forward, 240);
  EXPECT_EQ(costs->Time(model.tanh, kKind, 0).forward, 0);
}

TEST(ProfiledModel, OthersAreAnalyticTimesScaledByOperatorsAlike) {
  const Model model = Perceptron();
  const auto analytic = MakeAnalyticCostModel(model.graph);
  OperatorProfile profile;
  const OperatorTime first = analytic->Time(model.first, kKind, 4);
  const OperatorTime tanh = analytic->Time(model.tanh, kKind, 4);
  MeasuredOperators& measured = profile.devices[kDevice];
  measured[SignatureOf(model.graph, model.first)] = {
      "2026-11-22", {{4, 3 * first.forward, 3 * first.backward, 0, 3 * first.backward, 0, 0}}};
  measured[SignatureOf(model.graph, model.tanh)] = {
      "2026-11-20", {{4, 7 * tanh.forward, 7 * tanh.backward, 7 * tanh.backward, 0, 0, 0}}};
  const auto costs = Profiled(model.graph, profile);
  const OperatorTime second = analytic->Time(model.second, kKind, 16);
  EXPECT_EQ(costs->Time(model.second, kKind, 16).forward, 3 * second.forward);
  EXPECT_EQ(costs->Time(model.second, kKind, 16).backward, 3 * second.backward);
  const NodeId loss = model.graph.loss()->node;
  EXPECT_EQ(costs->Time(loss, kKind, 16).forward, 7 * analytic->Time(loss, kKind, 16).forward);
  EXPECT_EQ(costs->Time(model.first, kOther, 16).forward,
            analytic->Time(model.first, kOther, 16).forward);
  EXPECT_EQ(costs->Description(),
            "profile of 2 of 5 operators measured 2026-11-20 to 2026-11-22 on cpu (torch, 1 "
            "thread); others analytic roofline, scaled");
}

TEST(ProfiledModel, NeighboursSlowMeasuredOperatorsByWhatTheyDo) {
  const Model model = Perceptron();
  const DeviceKind kinds[] = {WithSlowdown(kKind, 1, 3), WithSlowdown(kKind, 2, 2)};
  OperatorProfile profile;
  profile.devices[kDevice][SignatureOf(model.graph, model.tanh)] = {
      "2026-11-22", {{1 << 20, 3'000'000, 600'000, 600'000, 0, 0, 0}}};
  const auto time = [&](const DeviceKind& kind) {
    return MakeProfiledCostModel(model.graph, std::span(&kind, 1), profile,
                                 MakeAnalyticCostModel(model.graph))
        ->Time(model.tanh, kind, 1 << 20);
  };
  EXPECT_NEAR(static_cast<double>(time(kinds[0]).forward), 9e6, 0.1e6) << "it goes over memory";
  EXPECT_NEAR(static_cast<double>(time(kinds[0]).backward), 1.8e6, 0.1e6);
  EXPECT_NEAR(static_cast<double>(time(kinds[1]).forward), 6e6, 0.1e6);
  const DeviceKind alone = Alone(kinds[1]);
  EXPECT_EQ(time(alone).forward, 3'000'000);
}

TEST(ProfiledModel, TakesTheLastSoftwareAndOnlyThePrecision) {
  const Model model = Perceptron();
  const std::string signature = SignatureOf(model.graph, model.tanh);
  OperatorProfile profile;
  profile.devices[{"cpu", "a"}][signature] = {"2026-11-23", {{1, 100, 0, 0, 0, 0, 0}}};
  profile.devices[{"cpu", "b"}][signature] = {"2026-11-22", {{1, 200, 0, 0, 0, 0, 0}}};
  EXPECT_EQ(Profiled(model.graph, profile)->Time(model.tanh, kKind, 1).forward, 100);
  const auto mixed = Profiled(model.graph, profile, Precision::kBFloat16);
  EXPECT_THAT(mixed->Description(), HasSubstr("profile of 0 of 5 operators on cpu"));
  EXPECT_EQ(
      mixed->Time(model.tanh, kKind, 1).forward,
      MakeAnalyticCostModel(model.graph, Precision::kBFloat16)->Time(model.tanh, kKind, 1).forward);
  EXPECT_THAT(Profiled(model.graph, {})->Description(), HasSubstr("no device kind has a profile"));
}

TEST(ProfiledModel, AddsTheBytesThatTheGraphDoesNotTell) {
  const Model model = Perceptron();
  const auto analytic = MakeAnalyticCostModel(model.graph);
  OperatorProfile profile;
  // A tanh keeps its result, 64 bytes a sample, which the analytic model knows of.
  profile.devices[kDevice][SignatureOf(model.graph, model.tanh)] = {
      "2026-11-22", {{1, 1, 0, 0, 0, 64, 0}, {2, 1, 0, 0, 0, 128, 0}}};
  profile.devices[kDevice][SignatureOf(model.graph, model.second)] = {
      "2026-11-22", {{1, 1, 0, 0, 0, 100, 1000}, {2, 1, 0, 0, 0, 200, 2000}}};
  const auto costs = Profiled(model.graph, profile);
  EXPECT_EQ(costs->SavedBytes(model.tanh, 4), analytic->SavedBytes(model.tanh, 4));
  EXPECT_EQ(costs->SavedBytes(model.second, 4), analytic->SavedBytes(model.second, 4) + 400);
  EXPECT_EQ(costs->WorkspaceBytes(model.second, 4),
            analytic->WorkspaceBytes(model.second, 4) + 4000);
}

TEST(ProfiledModelProperty, SumsGrowWithTheSamples) {
  Rng rng(11);
  for (int trial = 0; trial < 30; ++trial) {
    const Graph graph = RandomGraph(rng, 12);
    OperatorProfile profile;
    for (int32_t v = 0; v < graph.size(); ++v) {
      if (Uniform(rng, 0, 3) == 0) continue;
      MeasuredOperator measured{"2026-11-22", {}};
      for (int64_t samples = 1; samples <= 16; samples *= 2) {
        const Nanos input(Uniform(rng, 0, 900)), weight(Uniform(rng, 0, 900));
        measured.samples.push_back(
            {samples, Nanos(Uniform(rng, 0, 900)), input + weight, input, weight, 0, 0});
      }
      profile.devices[kDevice][SignatureOf(graph, NodeId(v))] = std::move(measured);
    }
    const auto costs = Profiled(graph, profile);
    OperatorTime before;
    for (int64_t samples = 1; samples < 40; ++samples) {
      OperatorTime sum;
      for (int32_t v = 0; v < graph.size(); ++v) {
        const OperatorTime time = costs->Time(NodeId(v), kKind, samples);
        EXPECT_EQ(time.backward, time.backward_input + time.backward_weight);
        sum += time;
      }
      EXPECT_GE(sum.forward, before.forward);
      EXPECT_GE(sum.backward, before.backward);
      before = sum;
    }
  }
}

}  // namespace
}  // namespace stagewright
