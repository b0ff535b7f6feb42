#include "common/cost/analytic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/cost/cost_model.h"
#include "common/cost/operations/flops.h"
#include "common/topology/presets.h"
#include "tests/support/graph_builder.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright {
namespace {

using testing::Batched;
using testing::GraphBuilder;
using testing::NodeOf;
using testing::Number;
using testing::RandomGraph;
using testing::Rng;
using testing::Uniform;

// 60 % of 1e12 operations a second, 1e11 bytes a second.
const DeviceKind kKind{"k", 1e12, 1e11, 1000, 0};
constexpr double kReached = 0.6e12;

Nanos ComputeTime(double flops) {
  return 1000 + static_cast<Nanos>(std::ceil(flops / kReached * 1e9));
}

TEST(Analytic, ComputeBoundProduct) {
  GraphBuilder builder("linear");
  const Argument x = builder.Feature("x", {512, 1024});
  const Argument first =
      builder.Add("aten.linear.default", {x, builder.Weight("a", {1024, 1024})}, {512, 1024});
  const Argument second =
      builder.Add("aten.linear.default", {first, builder.Weight("b", {1024, 1024})}, {512, 1024});
  const Graph graph = builder.Build();
  const auto costs = MakeAnalyticCostModel(graph);
  const double flops = 2.0 * 3 * 512 * 1024 * 1024;
  const OperatorTime time = costs->Time(NodeOf(second), kKind, 3);
  EXPECT_EQ(time.forward, ComputeTime(flops));
  EXPECT_EQ(time.backward_input, time.forward);
  EXPECT_EQ(time.backward_weight, time.forward);
  EXPECT_EQ(time.backward, 2 * time.forward);
  const OperatorTime no_input_gradient = costs->Time(NodeOf(first), kKind, 3);
  EXPECT_EQ(no_input_gradient.backward_input, 0);
  EXPECT_EQ(no_input_gradient.backward, no_input_gradient.forward);
}

TEST(Analytic, KindsThatAddGradientsUpTakeAnOperationForEach) {
  GraphBuilder builder("sums");
  const Argument linear = builder.Linear(builder.Feature("x", {64}), 64, 64);
  const Argument frozen = builder.Weight("frozen", {64, 64}, false);
  const Argument other = builder.Add("aten.linear.default", {linear, frozen}, {64});
  builder.Loss(other, {64});
  const Graph graph = builder.Build();
  const auto costs = MakeAnalyticCostModel(graph);
  DeviceKind adds = kKind;
  adds.adds_gradients = true;
  const OperatorTime without = costs->Time(NodeOf(linear), kKind, 3);
  const OperatorTime with = costs->Time(NodeOf(linear), adds, 3);
  EXPECT_EQ(with.forward, without.forward);
  // A weight and a bias: two reads and a write of each, at 100 bytes a nanosecond; and the sum that
  // a bias takes of the result's gradient.
  const double added = 3.0 * 4 * (64 * 64 + 64);
  const double summed = 4.0 * (3 * 64 + 64);
  EXPECT_EQ(with.backward_weight - without.backward_weight,
            3 * 1000 + Nanos(std::ceil(added / 100)) + Nanos(std::ceil(summed / 100)));
  EXPECT_EQ(costs->Time(NodeOf(other), adds, 3).backward,
            costs->Time(NodeOf(other), kKind, 3).backward);
}

TEST(Analytic, LaunchesHideBehindTheKernelsOfAsynchronousKinds) {
  GraphBuilder builder("queue");
  const Argument x = builder.Feature("x", {64});
  const Argument a = builder.Linear(x, 64, 64);
  const Argument b = builder.Linear(a, 64, 64);
  const Argument s = builder.Add("aten.gelu.default", {b}, {64});
  builder.Loss(s, {64});
  const Graph graph = builder.Build();
  const auto costs = MakeAnalyticCostModel(graph);
  DeviceKind queued = kKind;
  queued.adds_gradients = true;
  DeviceKind waits = queued;
  queued.asynchronous = true;
  // Many samples: kernels outlast their launches, and those alone count. An activation is one
  // launch each way; a linear's weight half is a product, a bias's sum and two sums of gradients.
  const int64_t many = int64_t{1} << 20;
  const OperatorTime sum = costs->Time(NodeOf(s), queued, many);
  EXPECT_EQ(sum.forward, costs->Time(NodeOf(s), waits, many).forward - 1000);
  EXPECT_EQ(sum.backward, costs->Time(NodeOf(s), waits, many).backward - 1000);
  const OperatorTime product = costs->Time(NodeOf(b), queued, many);
  EXPECT_EQ(product.forward, costs->Time(NodeOf(b), waits, many).forward - 1000);
  EXPECT_EQ(product.backward_weight, costs->Time(NodeOf(b), waits, many).backward_weight - 4000);
  // One sample: the host is the slower one.
  EXPECT_EQ(costs->Time(NodeOf(s), queued, 1).forward, 1000);
  EXPECT_EQ(costs->Time(NodeOf(b), queued, 1).forward, 1000);
  EXPECT_EQ(costs->Time(NodeOf(b), queued, 1).backward_weight, 4000);
}

TEST(Analytic, CastsAreLaunchedIntoTheSameQueue) {
  GraphBuilder builder("casts");
  const Argument x = builder.Feature("x", {512, 1024});
  const Argument y =
      builder.Add("aten.linear.default", {x, builder.Weight("w", {1024, 1024})}, {512, 1024});
  const Graph graph = builder.Build();
  const auto costs = MakeAnalyticCostModel(graph, Precision::kBFloat16);
  DeviceKind queued = kKind;
  queued.asynchronous = true;
  const OperatorTime waits = costs->Time(NodeOf(y), kKind, 3);
  EXPECT_EQ(costs->Time(NodeOf(y), queued, 3).forward, waits.forward - 2000);
  EXPECT_EQ(costs->Time(NodeOf(y), queued, 3).backward, waits.backward - 2000);
}

// The head of GPT-2 has 50,257 columns.
TEST(Analytic, UnalignedProductsInSixteenBitsAreSlower) {
  const auto forward = [](int64_t columns, double slowdown, Precision precision) {
    GraphBuilder builder("head");
    const Argument x = builder.Feature("x", {64, 1024});
    const Argument y = builder.Add("aten.linear.default", {x, builder.Weight("w", {columns, 1024})},
                                   {64, columns});
    const Graph graph = builder.Build();
    DeviceKind kind = kKind;
    kind.kernel_overhead = 0;
    kind.unaligned_slowdown = slowdown;
    const auto costs = MakeAnalyticCostModel(graph, precision);
    return static_cast<double>(costs->Time(NodeOf(y), kind, 32).forward);
  };
  for (Precision precision : {Precision::kBFloat16, Precision::kFloat16}) {
    EXPECT_NEAR(forward(50257, 6, precision) / forward(50257, 1, precision), 6, 0.01);
    EXPECT_EQ(forward(50304, 6, precision), forward(50304, 1, precision));
  }
  EXPECT_EQ(forward(50257, 6, Precision::kGraph), forward(50257, 1, Precision::kGraph));
}

TEST(Analytic, FrozenWeightsHaveNoWeightGradient) {
  GraphBuilder builder("frozen");
  const Argument x = builder.Feature("x", {64});
  const Argument a = builder.Linear(x, 64, 64);
  const Argument frozen = builder.Weight("frozen", {64, 64}, false);
  const Argument b = builder.Add("aten.linear.default", {a, frozen}, {64});
  const Argument c = builder.Add("aten.linear.default", {x, frozen}, {64});
  const Graph graph = builder.Build();
  const auto costs = MakeAnalyticCostModel(graph);
  const OperatorTime time = costs->Time(NodeOf(b), kKind, 2);
  EXPECT_EQ(time.backward_weight, 0);
  EXPECT_EQ(time.backward, time.forward);
  EXPECT_EQ(costs->Time(NodeOf(c), kKind, 2).backward, 0);
}

TEST(Analytic, MemoryBoundProductAndElementwise) {
  GraphBuilder builder("bytes");
  const Argument x = builder.Feature("x", {4096});
  const Argument a =
      builder.Add("aten.linear.default", {x, builder.Weight("w", {4096, 4096})}, {4096});
  const Argument b = builder.Add("aten.add.Tensor", {a, x}, {4096});
  const Graph graph = builder.Build();
  const auto costs = MakeAnalyticCostModel(graph);
  const double product_bytes = 4.0 * (4096 + 4096 * 4096 + 4096);
  EXPECT_EQ(costs->Time(NodeOf(a), kKind, 1).forward,
            1000 + static_cast<Nanos>(std::ceil(product_bytes / 1e11 * 1e9)));
  const double sum_bytes = 4.0 * 3 * 4096 * 10;
  const OperatorTime sum = costs->Time(NodeOf(b), kKind, 10);
  EXPECT_EQ(sum.forward, 1000 + static_cast<Nanos>(std::ceil(sum_bytes / 1e11 * 1e9)));
  EXPECT_EQ(sum.backward, sum.forward);
  EXPECT_EQ(sum.backward_weight, 0);
}

TEST(Analytic, HalfEfficiencyFavoursLargerMicroBatches) {
  GraphBuilder builder("half");
  const Argument x = builder.Feature("x", {256, 1024});
  const Argument y =
      builder.Add("aten.linear.default", {x, builder.Weight("w", {1024, 1024})}, {256, 1024});
  const Graph graph = builder.Build();
  const auto costs = MakeAnalyticCostModel(graph);
  const double flops = 2.0 * 256 * 1024 * 1024;
  DeviceKind kind = kKind;
  kind.half_efficiency_flops = flops;  // One sample is the half-saturation point.
  EXPECT_EQ(costs->Time(NodeOf(y), kind, 1).forward, ComputeTime(2 * flops));
  EXPECT_EQ(costs->Time(NodeOf(y), kind, 3).forward, ComputeTime(4 * flops));
}

TEST(Analytic, ViewsAreFreeAndNoSamplesCostNothing) {
  GraphBuilder builder("free");
  const Argument x = builder.Feature("x", {8});
  const Argument a = builder.Linear(x, 8, 8);
  const Argument v = builder.Add("aten.view.default", {a, Number(-1)}, {2, 4});
  const Graph graph = builder.Build();
  const auto costs = MakeAnalyticCostModel(graph);
  EXPECT_EQ(costs->Time(NodeOf(v), kKind, 100).forward, 0);
  EXPECT_EQ(costs->Time(NodeOf(v), kKind, 100).backward, 0);
  EXPECT_EQ(costs->WorkspaceBytes(NodeOf(v), 100), 0);
  EXPECT_EQ(costs->Time(NodeOf(a), kKind, 0).forward, 0);
  EXPECT_EQ(costs->SavedBytes(NodeOf(a), 0), 0);
}

TEST(Analytic, EmbeddingWritesItsWholeGradient) {
  GraphBuilder builder("embedding");
  const Argument ids = builder.Feature("ids", {4}, DType::kInt64);
  const Argument table = builder.Weight("table", {1'000'000, 64});
  const Argument e = builder.Add("aten.embedding.default", {table, ids}, {4, 64});
  const Graph graph = builder.Build();
  const auto costs = MakeAnalyticCostModel(graph);
  const OperatorTime time = costs->Time(NodeOf(e), kKind, 1);
  const double gather = 4 * 8 + 2 * 4.0 * 4 * 64;
  EXPECT_EQ(time.forward, 1000 + static_cast<Nanos>(std::ceil(gather / 1e11 * 1e9)));
  EXPECT_EQ(time.backward_weight, time.forward + 2'560'000);
  EXPECT_EQ(time.backward_input, 0);
}

TEST(Analytic, AttentionBackwardIsTwiceItsForward) {
  GraphBuilder builder("attention");
  const Argument x = builder.Feature("x", {4, 128, 64});
  const Argument w = builder.Weight("w", {64, 64});
  const Argument q = builder.Add("aten.linear.default", {x, w}, {4, 128, 64});
  const Argument a =
      builder.Add("aten.scaled_dot_product_attention.default", {q, q, q}, {4, 128, 64});
  const Argument k = builder.Add("aten.relu.default", {q}, {4, 128, 64});
  const Argument b =
      builder.Add("aten.scaled_dot_product_attention.default", {q, k, k}, {4, 128, 64});
  const Graph graph = builder.Build();
  const auto costs = MakeAnalyticCostModel(graph);
  for (const Argument& node : {a, b}) {
    const OperatorTime time = costs->Time(NodeOf(node), kKind, 8);
    EXPECT_EQ(time.backward, 2 * time.forward);
    EXPECT_EQ(time.backward_weight, 0);
  }
}

TEST(Analytic, SavedBytesOfATransformerBlock) {
  GraphBuilder builder("block");
  const Argument x = builder.Feature("x", {16, 32});
  auto linear = [&](const char* name, const Argument& in, int64_t from, int64_t to) {
    return builder.Add("aten.linear.default", {in, builder.Weight(name, {to, from})}, {16, to});
  };
  const Argument h = linear("h", x, 32, 32);  // Free: a sum's term. It keeps the input.
  const Argument s = builder.Add("aten.add.Tensor", {h, x}, {16, 32});  // Layer norm's input.
  const Argument n = builder.Add("aten.layer_norm.default",
                                 {s, Number(32), builder.Weight("g", {32})}, {16, 32});  // Kept.
  const Argument u = linear("u", n, 32, 128);                           // Free: relu's input.
  const Argument r = builder.Add("aten.relu.default", {u}, {16, 128});  // Kept.
  // The result is kept, and the mask.
  const Argument d = builder.Add("aten.dropout.default", {r, {0.1}, {true}}, {16, 128});
  linear("d", d, 128, 32);
  const Graph graph = builder.Build();
  const auto costs = MakeAnalyticCostModel(graph);
  Bytes total = 0;
  for (int32_t v = 0; v < graph.size(); ++v) total += costs->SavedBytes(NodeId(v), 5);
  EXPECT_EQ(total, 5 * (4 * 16 * (32 + 32 + 32 + 128 + 128 + 2) + 16 * 128));
  EXPECT_EQ(costs->SavedBytes(NodeOf(h), 5), 5 * 4 * 16 * 32);
}

TEST(Analytic, WorkspaceIsWhatIsThereBesideSavedTensors) {
  GraphBuilder builder("workspace");
  const Argument x = builder.Feature("x", {32});
  const Argument h = builder.Add("aten.linear.default", {x, builder.Weight("w", {64, 32})}, {64});
  const Argument g = builder.Add("aten.gelu.default", {h}, {64});
  const Argument s = builder.Add("aten.add.Tensor", {g, h}, {64});
  const Graph graph = builder.Build();
  const auto costs = MakeAnalyticCostModel(graph);
  const Bytes value = 4 * 64 * 10;
  // The gradient of the weight; that of the result takes the place of the result, which gelu kept.
  EXPECT_EQ(costs->WorkspaceBytes(NodeOf(h), 10), 4 * 64 * 32);
  // Its result, which nobody keeps; backward, the gradients of both sides.
  EXPECT_EQ(costs->WorkspaceBytes(NodeOf(g), 10), 2 * value);
  // Forward, both results that nobody keeps; backward, one gradient for both operands.
  EXPECT_EQ(costs->WorkspaceBytes(NodeOf(s), 10), 2 * value);
}

TEST(Analytic, ProfiledNodesScaleWithTheSamples) {
  GraphData data;
  data.nodes.resize(1);
  data.nodes[0].name = "a";
  data.nodes[0].cost = ProfiledCost{1000, 2500, 640, 99, 4};
  const auto graph = Graph::Create(data);
  ASSERT_TRUE(graph.ok());
  const auto costs = MakeAnalyticCostModel(*graph);
  const OperatorTime time = costs->Time(NodeId(0), kKind, 6);
  EXPECT_EQ(time.forward, 1500);
  EXPECT_EQ(time.backward, 3750);
  EXPECT_EQ(time.backward_input + time.backward_weight, time.backward);
  EXPECT_EQ(costs->SavedBytes(NodeId(0), 6), 960);
}

// What the model precomputes agrees with the formula at any number of samples, also where sizes are
// quadratic in them.
TEST(Analytic, PrecomputedFiguresAreExact) {
  GraphBuilder builder("quadratic");
  const Argument x = builder.Feature("x", {8});
  const Argument a = builder.Linear(x, 8, 8);
  const TensorMeta turned{DType::kFloat32, {{0, 8}, {1, 0}}};
  const Argument t = builder.AddWith("aten.t.default", {a}, {turned});
  const TensorMeta square{DType::kFloat32, {{1, 0}, {1, 0}}};
  const Argument s = builder.AddWith("aten.mm.default", {a, t}, {square});
  const Argument r = builder.AddWith("aten.relu.default", {s}, {square});
  const Graph graph = builder.Build();
  const auto costs = MakeAnalyticCostModel(graph);
  for (int64_t samples : {1, 2, 7, 100, 4096}) {
    EXPECT_EQ(ForwardFlops(graph, NodeOf(s), samples), 2.0 * samples * samples * 8);
    EXPECT_EQ(costs->SavedBytes(NodeOf(r), samples), 4 * samples * samples);
    const double bytes = 4.0 * (8 * samples + 8 * samples + samples * samples);
    const double flops = 2.0 * samples * samples * 8;
    const double seconds = std::max(bytes / 1e11, flops / kReached);
    EXPECT_EQ(costs->Time(NodeOf(s), kKind, samples).forward,
              1000 + static_cast<Nanos>(std::ceil(seconds * 1e9)));
  }
}

TEST(Analytic, HugeSizesSaturate) {
  GraphBuilder builder("huge");
  const Argument x = builder.Feature("x", {int64_t{1} << 48});
  const Argument w = builder.Weight("w", {int64_t{1} << 48});
  const Argument y = builder.Add("aten.unknown.default", {x, w}, {int64_t{1} << 48});
  const Graph graph = builder.Build();
  const auto costs = MakeAnalyticCostModel(graph);
  const int64_t most = int64_t{1} << 40;
  EXPECT_GT(costs->SavedBytes(NodeOf(y), most), int64_t{1} << 59);
  EXPECT_GT(costs->Time(NodeOf(y), kKind, most).forward, int64_t{1} << 59);
  EXPECT_GT(costs->Time(NodeOf(y), kKind, most).backward, 0);
}

// One sample of a batch is as large as a row that is added to all of them.
TEST(Analytic, WhatIsBroadcastOverSamplesTakesNoNegativeTime) {
  GraphBuilder builder("rows");
  const Argument x = builder.Linear(builder.Feature("x", {64}), 64, 64);
  const Argument row = builder.AddWith("aten.mul.Tensor", {builder.Weight("r", {64}), Number(2)},
                                       {testing::Fixed({64})});
  const Argument sum = builder.Add("aten.add.Tensor", {x, row}, {64});
  const Argument wide = builder.Add("aten.expand.default", {row, Number(-1)}, {64});
  const Argument all = builder.Add("aten.mul.Tensor", {sum, wide}, {64});
  builder.Loss(all, {64});
  const Graph graph = builder.Build();
  const auto costs = MakeAnalyticCostModel(graph);
  DeviceKind kind = kKind;
  kind.adds_gradients = true;
  for (const Argument& value : {row, sum, wide, all}) {
    OperatorTime before;
    for (int64_t samples = 1; samples <= 4096; samples *= 2) {
      const OperatorTime time = costs->Time(NodeOf(value), kind, samples);
      EXPECT_GE(time.backward_input, before.backward_input);
      EXPECT_GE(time.backward_weight, before.backward_weight);
      before = time;
    }
  }
}

TEST(Analytic, TimesOfRandomGraphsAreSane) {
  Rng rng(9);
  for (int i = 0; i < 100; ++i) {
    const Graph graph = RandomGraph(rng, 30);
    DeviceKind kind = kKind;
    kind.adds_gradients = i % 2 == 1;
    const auto costs = MakeAnalyticCostModel(graph);
    for (int32_t v = 0; v < graph.size(); ++v) {
      const NodeId id(v);
      OperatorTime before;
      for (int64_t samples = 0; samples <= 8; ++samples) {
        const OperatorTime time = costs->Time(id, kind, samples);
        ASSERT_GE(time.forward, before.forward) << "more samples never take less";
        ASSERT_GE(time.backward, before.backward);
        ASSERT_EQ(time.backward, time.backward_input + time.backward_weight);
        ASSERT_TRUE(graph.needs_backward(id) || time.backward == 0);
        ASSERT_GE(costs->SavedBytes(id, samples), 0);
        before = time;
      }
    }
  }
}

// Three layers of 1,024 and what is between them in a Transformer.
Graph Wide() {
  GraphBuilder builder("wide");
  Argument x = builder.Feature("x", {128, 1024});
  const auto linear = [&](const Argument& value, int64_t in, int64_t out) {
    return builder.Add(
        "aten.linear.default",
        {value, builder.Weight(absl::StrCat("w", builder.data.nodes.size()), {out, in})},
        {128, out});
  };
  for (int layer = 0; layer < 3; ++layer) {
    const Argument norm = builder.Add("aten.layer_norm.default", {x}, {128, 1024});
    const Argument gelu = builder.Add("aten.gelu.default", {linear(norm, 1024, 4096)}, {128, 4096});
    x = builder.Add("aten.add.Tensor", {x, linear(gelu, 4096, 1024)}, {128, 1024});
  }
  builder.Loss(x, {128, 1024});
  return builder.Build();
}

TEST(Analytic, ProductsInMixedPrecision) {
  GraphBuilder builder("mixed");
  const Argument x = builder.Feature("x", {512, 1024});
  const Argument a =
      builder.Add("aten.linear.default", {x, builder.Weight("a", {1024, 1024})}, {512, 1024});
  const Argument b =
      builder.Add("aten.linear.default", {a, builder.Weight("b", {1024, 1024})}, {512, 1024});
  const Graph graph = builder.Build();
  DeviceKind kind = kKind;
  kind.bf16_flops_per_second = 4e12;
  const auto costs = MakeAnalyticCostModel(graph, Precision::kBFloat16);
  EXPECT_EQ(costs->precision(), Precision::kBFloat16);
  const double flops = 2.0 * 3 * 512 * 1024 * 1024;
  const Nanos product = 1000 + static_cast<Nanos>(std::ceil(flops / (4e12 * kPeakShare) * 1e9));
  const double values = 3.0 * 512 * 1024, weights = 1024.0 * 1024;
  const auto cast = [](double scalars) {
    return 1000 + static_cast<Nanos>(std::ceil(scalars * (4 + 2) / 1e11 * 1e9));
  };
  // The first casts the input of the graph, which has no gradient; both cast those of weights.
  EXPECT_EQ(costs->Time(NodeOf(a), kind, 3).forward, product + cast(values));
  EXPECT_EQ(costs->Time(NodeOf(b), kind, 3).forward, product);
  EXPECT_EQ(costs->Time(NodeOf(b), kind, 3).backward_input, product);
  EXPECT_EQ(costs->Time(NodeOf(b), kind, 3).backward_weight, product + cast(weights));
  // What each takes, in two bytes a scalar.
  EXPECT_EQ(costs->SavedBytes(NodeOf(a), 3), 2 * 2 * 3 * 512 * 1024);
  EXPECT_EQ(MakeAnalyticCostModel(graph)->SavedBytes(NodeOf(a), 3), 2 * 4 * 3 * 512 * 1024);
}

TEST(Analytic, ConvolutionsInFloat32UseTF32) {
  GraphBuilder builder("conv");
  const Argument x = builder.Feature("x", {64, 32, 32});
  const Argument y =
      builder.Add("aten.conv2d.default", {x, builder.Weight("w", {64, 64, 3, 3})}, {64, 30, 30});
  const Graph graph = builder.Build();
  const auto costs = MakeAnalyticCostModel(graph);
  DeviceKind kind = kKind;
  kind.tf32_flops_per_second = 2e12;
  const double flops = 2.0 * 64 * 30 * 30 * 64 * 9;
  EXPECT_EQ(costs->Time(NodeOf(y), kKind, 1).forward, ComputeTime(flops));
  EXPECT_EQ(costs->Time(NodeOf(y), kind, 1).forward, ComputeTime(flops / 2));
  GraphData wide = graph.data();
  for (Input& input : wide.inputs) input.meta.dtype = DType::kFloat64;
  for (Parameter& parameter : wide.parameters) parameter.dtype = DType::kFloat64;
  for (Node& node : wide.nodes) node.outputs[0].dtype = DType::kFloat64;
  const Graph in_float64 = Graph::Create(std::move(wide)).value();
  EXPECT_EQ(MakeAnalyticCostModel(in_float64)->Time(NodeOf(y), kind, 1).forward,
            ComputeTime(flops));
}

TEST(Analytic, MixedPrecisionIsNeverSlowerNorTakesMoreThanFloat32) {
  const Graph graph = Wide();
  const auto wide = MakeAnalyticCostModel(graph);
  const struct {
    const char* preset;
    Precision precision;
  } cases[] = {{"summit:1", Precision::kFloat16},
               {"dgx-a100:1", Precision::kBFloat16},
               {"dgx-a100:1", Precision::kFloat16},
               {"dgx-h100:1", Precision::kBFloat16},
               {"dgx-h200:1", Precision::kBFloat16}};
  for (const auto& c : cases) {
    const DeviceKind kind = ClusterPreset(c.preset)->kinds()[0];
    const auto small = MakeAnalyticCostModel(graph, c.precision);
    for (int64_t samples : {1, 4, 32, 256}) {
      OperatorTime before, after;
      Bytes saved_before = 0, saved_after = 0;
      for (int32_t v = 0; v < graph.size(); ++v) {
        before += wide->Time(NodeId(v), kind, samples);
        after += small->Time(NodeId(v), kind, samples);
        saved_before += wide->SavedBytes(NodeId(v), samples);
        saved_after += small->SavedBytes(NodeId(v), samples);
      }
      EXPECT_LT(after.forward, before.forward) << c.preset << " " << samples;
      EXPECT_LT(after.backward, before.backward) << c.preset << " " << samples;
      EXPECT_LT(saved_after, saved_before) << c.preset << " " << samples;
    }
  }
}

}  // namespace
}  // namespace stagewright
