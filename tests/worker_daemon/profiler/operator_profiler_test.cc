#include "worker_daemon/profiler/operator_profiler.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "common/cost/analytic.h"
#include "common/cost/measured/monotone_curve.h"
#include "common/cost/measured/operator_signature.h"
#include "common/cost/measured/profiled_model.h"
#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using testing::Batched;
using ::testing::ElementsAre;
using testing::Fixed;
using testing::GraphBuilder;
using ::testing::HasSubstr;
using testing::NodeOf;
using testing::Number;

struct Model {
  Graph graph;
  NodeId embedding, norm, heads, attended, dropped, up, down, loss;
};

// A small language model's layer, with everything that needs care: indices, views, dropout, a loss.
Model Layer() {
  GraphBuilder builder("layer");
  const Argument ids = builder.Feature("ids", {16}, DType::kInt64);
  const Argument x =
      builder.Add("aten.embedding.default", {builder.Weight("table", {50, 32}), ids}, {16, 32});
  const Argument norm = builder.Add("aten.layer_norm.default",
                                    {x,
                                     {Argument::List{Number(32)}},
                                     builder.Weight("scale", {32}),
                                     builder.Weight("shift", {32})},
                                    {16, 32});
  const Argument heads = builder.Add(
      "aten.view.default",
      {norm, {Argument::List{{SymInt{1, 0}}, Number(16), Number(2), Number(16)}}}, {16, 2, 16});
  const Argument turned =
      builder.Add("aten.transpose.int", {heads, Number(1), Number(2)}, {2, 16, 16});
  const Argument attended = builder.Add("aten.scaled_dot_product_attention.default",
                                        {turned, turned, turned}, {2, 16, 16});
  const Argument dropped =
      builder.Add("aten.dropout.default", {attended, {0.1}, {true}}, {2, 16, 16});
  const Argument flat = builder.Add(
      "aten.reshape.default", {dropped, {Argument::List{{SymInt{1, 0}}, Number(512)}}}, {512});
  const Argument up = builder.Linear(flat, 512, 512);
  const Argument down = builder.Linear(up, 512, 512);
  const Argument last = builder.Linear(down, 512, 512);
  builder.Loss(last, {512});
  Graph graph = builder.Build();
  const NodeId loss = graph.loss()->node;
  return {std::move(graph), NodeOf(x),  NodeOf(norm), NodeOf(heads), NodeOf(attended),
          NodeOf(dropped),  NodeOf(up), NodeOf(down), loss};
}

// What Layer costs, measured once.
const ProfiledGraph& LayerProfile() {
  static const ProfiledGraph profiled = [] {
    at::set_num_threads(1);  // As jobs on CPUs have.
    const Model model = Layer();
    auto measured =
        ProfileOperators(model.graph, {.most_samples = 4, .memory = kGiB, .day = "2026-11-22"});
    EXPECT_TRUE(measured.ok()) << measured.status();
    return *std::move(measured);
  }();
  return profiled;
}

const MeasuredOperator& Of(const ProfiledGraph& profiled, const Graph& graph, NodeId node) {
  const auto found = profiled.operators.find(SignatureOf(graph, node));
  EXPECT_NE(found, profiled.operators.end()) << graph.node(node).name;
  return found->second;
}

std::vector<int64_t> SamplesOf(const MeasuredOperator& measured) {
  std::vector<int64_t> samples;
  for (const OperatorMeasurement& at : measured.samples) samples.push_back(at.samples);
  return samples;
}

TEST(OperatorProfiler, MeasuresEveryDistinctOperatorOfAGraph) {
  const Model model = Layer();
  const ProfiledGraph& profiled = LayerProfile();
  for (const UnmeasuredOperator& left : profiled.unmeasured) ADD_FAILURE() << left.reason;
  // Two of the three linear operators are alike.
  EXPECT_EQ(profiled.operators.size(), static_cast<size_t>(model.graph.size()) - 1);
  OperatorProfile profile;
  profile.devices[{"cpu", ProfiledSoftware(1)}] = profiled.operators;
  EXPECT_TRUE(Check(profile).ok()) << Check(profile);
  for (const auto& [signature, measured] : profiled.operators) {
    EXPECT_THAT(SamplesOf(measured), ElementsAre(1, 2, 4)) << signature;
    EXPECT_EQ(measured.measured_on, "2026-11-22");
    for (const OperatorMeasurement& at : measured.samples) {
      EXPECT_GT(at.forward, 0) << signature;
      EXPECT_GT(at.backward, 0) << signature;
    }
  }
  const OperatorMeasurement table = Of(profiled, model.graph, model.embedding).samples[0];
  EXPECT_EQ(table.backward_input, 0);
  const OperatorMeasurement loss = Of(profiled, model.graph, model.loss).samples[0];
  EXPECT_EQ(loss.backward_weight, 0);
  const OperatorMeasurement product = Of(profiled, model.graph, model.up).samples[2];
  EXPECT_GT(product.backward_input, 0);
  EXPECT_GT(product.backward_weight, 0);
}

TEST(OperatorProfiler, KeptBytesAreWhatTheBackwardPassNeeds) {
  const Model model = Layer();
  const ProfiledGraph& profiled = LayerProfile();
  EXPECT_EQ(Of(profiled, model.graph, model.up).samples[1].kept, 0);
  EXPECT_EQ(Of(profiled, model.graph, model.heads).samples[1].kept, 0);
  // Mean and deviation of each row.
  EXPECT_EQ(Of(profiled, model.graph, model.norm).samples[1].kept, 2 * 2 * 16 * 4);
  // Its result, and the logarithm of each row's sum.
  EXPECT_EQ(Of(profiled, model.graph, model.attended).samples[1].kept,
            2 * (2 * 16 * 16 + 2 * 16) * 4);
}

TEST(OperatorProfiler, CostsOfAModelMadeOfItAreItsOwn) {
  const Model model = Layer();
  const ProfiledGraph& profiled = LayerProfile();
  OperatorProfile profile;
  profile.devices[{"cpu", ProfiledSoftware(1)}] = profiled.operators;
  const DeviceKind kinds[] = {{"cpu", 1e11, 1e10, 1000, 0}};
  const auto costs =
      MakeProfiledCostModel(model.graph, kinds, profile, MakeAnalyticCostModel(model.graph));
  std::vector<std::pair<double, double>> points;
  for (const OperatorMeasurement& at : Of(profiled, model.graph, model.up).samples)
    points.emplace_back(at.samples, at.forward.count());
  // The last of them, unless other programs disturbed one before it.
  EXPECT_NEAR(static_cast<double>(costs->Time(model.up, kinds[0], 4).forward.count()),
              MonotoneCurve(points, /*constant=*/false).At(4), 1);
  EXPECT_THAT(costs->Description(), HasSubstr("11 of 11 operators"));
}

TEST(OperatorProfiler, NamesWhatCannotBeRunAndGoesOn) {
  GraphBuilder builder("unknown");
  const Argument first = builder.Linear(builder.Feature("x", {6}), 6, 6);
  const Argument noise = builder.Add("aten.rand_like.default", {first}, {6});
  const Argument unknown = builder.Add("aten.no_such_operator.default", {first}, {6});
  builder.Loss(builder.Add("aten.add.Tensor", {unknown, noise}, {6}), {6});
  const Graph graph = builder.Build();
  const auto profiled =
      ProfileOperators(graph, {.most_samples = 1, .memory = kGiB, .day = "2026-11-22"});
  ASSERT_TRUE(profiled.ok()) << profiled.status();
  EXPECT_EQ(profiled->operators.size(), 3u);
  ASSERT_EQ(profiled->unmeasured.size(), 2u);
  EXPECT_EQ(profiled->unmeasured[0].node, graph.node(NodeOf(noise)).name);
  EXPECT_THAT(profiled->unmeasured[0].reason, HasSubstr("random numbers"));
  EXPECT_THAT(profiled->unmeasured[1].reason, HasSubstr("no such operator"));
}

TEST(OperatorProfiler, SizesEndWhereMemoryDoes) {
  GraphBuilder builder("memory");
  const Argument first = builder.Linear(builder.Feature("x", {1024}), 1024, 16);
  builder.Loss(first, {16});
  const Graph graph = builder.Build();
  const auto profiled =
      ProfileOperators(graph, {.most_samples = 256, .memory = 400 * kKiB, .day = "2026-11-22"});
  ASSERT_TRUE(profiled.ok()) << profiled.status();
  // Weight and gradient take 128 KiB, and a sample of the input 4.
  EXPECT_LT(SamplesOf(Of(*profiled, graph, NodeOf(first))).back(), 64);
  EXPECT_EQ(SamplesOf(Of(*profiled, graph, graph.loss()->node)).back(), 256);
}

TEST(OperatorProfiler, SizesBeginWhereTheGraphDoesAndConstantsHaveOne) {
  GraphBuilder builder("bounds");
  builder.data.samples.least = 3;
  const Argument doubled =
      builder.AddWith("aten.mul.Tensor", {builder.Weight("w", {6}), Number(2)}, {Fixed({6})});
  const Argument sum = builder.Add("aten.add.Tensor", {builder.Feature("x", {6}), doubled}, {6});
  builder.Loss(sum, {6});
  const Graph graph = builder.Build();
  const auto profiled =
      ProfileOperators(graph, {.most_samples = 10, .memory = kGiB, .day = "2026-11-22"});
  ASSERT_TRUE(profiled.ok()) << profiled.status();
  EXPECT_THAT(SamplesOf(Of(*profiled, graph, NodeOf(sum))), ElementsAre(3, 4, 8));
  EXPECT_THAT(SamplesOf(Of(*profiled, graph, NodeOf(doubled))), ElementsAre(3));
}

TEST(OperatorProfiler, MixedPrecisionIsMeasuredAsSuch) {
  GraphBuilder builder("mixed");
  const Argument first = builder.Linear(builder.Feature("x", {6}), 6, 6);
  builder.Loss(first, {6});
  const Graph graph = builder.Build();
  const auto profiled = ProfileOperators(
      graph,
      {.precision = Precision::kBFloat16, .most_samples = 2, .memory = kGiB, .day = "2026-11-22"});
  ASSERT_TRUE(profiled.ok()) << profiled.status();
  EXPECT_TRUE(profiled->unmeasured.empty());
  EXPECT_TRUE(
      profiled->operators.contains(SignatureOf(graph, NodeOf(first), Precision::kBFloat16)));
}

// What the engine keeps for the backward pass is what the graph tells, in the types of bf16: a
// product's result has half the size, and the next product keeps it as it came.
TEST(OperatorProfiler, MixedPrecisionKeepsWhatTheGraphTells) {
  GraphBuilder builder("mixed");
  const Argument first = builder.Linear(builder.Feature("x", {64}), 64, 64);
  const Argument tanh = builder.Add("aten.tanh.default", {first}, {64});
  const Argument second = builder.Linear(tanh, 64, 64);
  builder.Loss(second, {64});
  const Graph graph = builder.Build();
  constexpr Precision kPrecision = Precision::kBFloat16;
  const auto profiled = ProfileOperators(
      graph, {.precision = kPrecision, .most_samples = 8, .memory = kGiB, .day = "2026-11-22"});
  ASSERT_TRUE(profiled.ok()) << profiled.status();
  OperatorProfile profile;
  profile.devices[{"cpu", ProfiledSoftware(1)}] = profiled->operators;
  const DeviceKind kinds[] = {{"cpu", 1e11, 1e10, 1000, 0}};
  const auto costs =
      MakeProfiledCostModel(graph, kinds, profile, MakeAnalyticCostModel(graph, kPrecision));
  const auto analytic = MakeAnalyticCostModel(graph, kPrecision);
  for (const Argument& node : {first, tanh, second}) {
    EXPECT_EQ(costs->SavedBytes(NodeOf(node), 8), analytic->SavedBytes(NodeOf(node), 8))
        << graph.node(NodeOf(node)).name;
  }
  // The second product's operand is no copy of its own.
  const auto at8 = profiled->operators.at(SignatureOf(graph, NodeOf(second), kPrecision));
  EXPECT_EQ(at8.samples.back().kept, 0);
}

TEST(OperatorProfiler, RefusesWhatItCannotMeasureAndStopsWhenAsked) {
  const Model model = Layer();
  EXPECT_EQ(ProfileOperators(model.graph, {.most_samples = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ProfileOperators(model.graph, {.stopped = [] { return true; }}).status().code(),
            absl::StatusCode::kCancelled);
  GraphData imported;
  imported.name = "imported";
  imported.nodes.push_back({.name = "a", .cost = ProfiledCost{}});
  EXPECT_THAT(ProfileOperators(*Graph::Create(imported), {}).status().message(),
              HasSubstr("no operators to run"));
}

TEST(OperatorProfiler, SoftwareSaysVersionsAndThreads) {
  EXPECT_THAT(ProfiledSoftware(1), ::testing::MatchesRegex("stagewright .*, torch 2.*, 1 thread"));
  EXPECT_THAT(ProfiledSoftware(2), HasSubstr("2 threads"));
  EXPECT_EQ(ProfiledSoftware(0).find("thread"), std::string::npos);
}

}  // namespace
}  // namespace stagewright
