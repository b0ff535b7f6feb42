// In mixed precision, too, the loss does not depend on the plan, up to the rounding of its types.
#include "worker_daemon/torch/autocast.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/training/autocast.h"
#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/mixed_models.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "tests/worker_daemon/support/training_result.h"
#include "worker_daemon/executor/device_job.h"
#include "worker_daemon/stage/parameter_store.h"
#include "worker_daemon/stage/stage_module.h"
#include "worker_daemon/torch/tensor_types.h"

namespace stagewright::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSteps = 8;

// The relative rounding error of a value.
double Epsilon(Precision precision) { return precision == Precision::kBFloat16 ? 0x1p-8 : 0x1p-11; }

TEST(AutocastScope, HoldsForItsDeviceWhileItLives) {
  const at::Tensor a = Random({4, 4}, 1, at::kFloat);
  {
    const AutocastScope scope(at::kCPU, Precision::kBFloat16);
    EXPECT_EQ(at::matmul(a, a).scalar_type(), at::kBFloat16);
    {
      const AutocastScope inner(at::kCPU, Precision::kFloat16);
      EXPECT_EQ(at::matmul(a, a).scalar_type(), at::kHalf);
      const AutocastScope nothing(at::kCPU, Precision::kGraph);
      EXPECT_EQ(at::matmul(a, a).scalar_type(), at::kHalf);
    }
    EXPECT_EQ(at::matmul(a, a).scalar_type(), at::kBFloat16);
    const AutocastScope elsewhere(at::kCUDA, Precision::kFloat16);
    EXPECT_EQ(at::matmul(a, a).scalar_type(), at::kBFloat16);
    EXPECT_EQ(at::mse_loss(at::matmul(a, a), a).scalar_type(), at::kFloat);
  }
  EXPECT_EQ(at::matmul(a, a).scalar_type(), at::kFloat);
  EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
}

// The types that plans count with are LibTorch's.
TEST(AutocastScope, TypesAreThoseOfTheCommonRule) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 4});
  const int linear = make.AddLinear("l", In(x), 4, 4);
  const auto add = [&](const std::string& target, std::vector<Argument> arguments) {
    return make.AddNode(target, std::move(arguments), {Meta({-1, 4})});
  };
  const int relu = add("aten.relu.default", {Value(linear)});
  add("aten.gelu.default", {Value(linear)});
  add("aten.tanh.default", {Value(linear)});
  add("aten.mul.Tensor", {Value(linear), Value(relu)});
  add("aten.add.Tensor", {Value(linear), In(x)});
  add("aten.layer_norm.default", {In(x), List({Int(4)})});
  add("aten.softmax.int", {In(x), Int(1)});
  const int cat =
      make.AddNode("aten.cat.default", {List({Value(linear), In(x)}), Int(1)}, {Meta({-1, 8})});
  const int out = make.AddLinear("m", Value(cat), 8, 4);
  const int loss = make.AddNode("aten.mse_loss.default", {Value(out), In(x)}, {Meta({})});
  ToFloat32(make);
  const Graph graph = make.Finish(loss, out);
  for (Precision precision : {Precision::kBFloat16, Precision::kFloat16}) {
    const GraphTypes types = TypesOfGraph(graph, precision);
    const AutocastScope scope(at::kCPU, precision);
    const at::Tensor in = Random({2, 4}, 1, at::kFloat), weight = Random({4, 4}, 2, at::kFloat);
    const at::Tensor first = at::linear(in, weight), joined = at::cat({first, in}, 1);
    const at::Tensor last = at::linear(joined, Random({4, 8}, 3, at::kFloat));
    const std::vector<at::Tensor> results = {first,
                                             at::relu(first),
                                             at::gelu(first),
                                             at::tanh(first),
                                             at::mul(first, at::relu(first)),
                                             at::add(first, in),
                                             at::layer_norm(in, {4}),
                                             at::softmax(in, 1),
                                             joined,
                                             last,
                                             at::mse_loss(last, in)};
    ASSERT_EQ(static_cast<size_t>(graph.size()), results.size());
    for (size_t v = 0; v < results.size(); ++v) {
      EXPECT_EQ(results[v].scalar_type(), ToScalarType(types.nodes[v].results[0]))
          << graph.nodes()[v].target;
    }
  }
}

TEST(AutocastScope, KeepsNoCastOfAWeight) {
  at::Tensor weight = Random({4, 4}, 1, at::kFloat).requires_grad_(true);
  const AutocastScope scope(at::kCPU, Precision::kBFloat16);
  const at::Tensor before = at::matmul(weight, weight).detach();
  {
    const at::NoGradGuard no_grad;
    weight.mul_(2);
  }
  EXPECT_TRUE(at::equal(at::matmul(weight, weight).detach(), 4 * before));
}

class MixedTraining : public ::testing::TestWithParam<Precision> {
 protected:
  static TrainingResult Train(const DeviceJob& spec) {
    auto result = TrainLocally(spec);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : TrainingResult();
  }
  static double WorstLoss(const TrainingResult& a, const TrainingResult& b) {
    EXPECT_EQ(a.losses.size(), b.losses.size());
    double worst = 0;
    for (size_t i = 0; i < std::min(a.losses.size(), b.losses.size()); ++i)
      worst = std::max(worst, std::abs(a.losses[i] - b.losses[i]) / b.losses[i]);
    return worst;
  }
  static double WorstParameter(const TrainingResult& a, const TrainingResult& b) {
    double worst = 0;
    for (const auto& [name, value] : b.parameters)
      worst = std::max(worst, RelativeError(a.parameters.at(name), value));
    return worst;
  }
};

INSTANTIATE_TEST_SUITE_P(Precisions, MixedTraining,
                         ::testing::Values(Precision::kBFloat16, Precision::kFloat16),
                         [](const auto& test) {
                           return test.param == Precision::kBFloat16 ? "BFloat16" : "Float16";
                         });

// Stages, replicas, shared devices, micro-batches of other sizes, recomputation and dropout.
TEST_P(MixedTraining, IsTheSameForAnyPlan) {
  for (const bool dropout : {false, true}) {
    DeviceJob spec = ClassifierJob("mixed", dropout, kSteps);
    UseOneDevice(spec);
    const TrainingResult exact = Train(spec);
    spec.training.precision = GetParam();
    // Far from where one plan overflows and another does not.
    spec.training.loss_scale.initial = 1024;
    UseOneDevice(spec);
    const TrainingResult expected = Train(spec);
    ASSERT_EQ(expected.losses.size(), static_cast<size_t>(kSteps));
    EXPECT_LT(expected.losses.back(), 0.7 * expected.losses.front());
    // It is another precision, and not a wrong one.
    EXPECT_GT(WorstParameter(expected, exact), Epsilon(GetParam()) / 64);
    EXPECT_LT(WorstLoss(expected, exact), 4 * Epsilon(GetParam()));
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      SCOPED_TRACE(seed);
      UsePlan(spec,
              {.stages = 1 + static_cast<int>(seed % 4),
               .most_replicas = 1 + static_cast<int>(seed % 3),
               .share_devices = seed % 4 == 0,
               .recompute = seed % 2 == 1},
              seed);
      const TrainingResult result = Train(spec);
      EXPECT_LT(WorstLoss(result, expected), 4 * Epsilon(GetParam()));
      EXPECT_LT(WorstParameter(result, expected), 4 * Epsilon(GetParam()));
    }
  }
}

// A recomputed forward pass runs in the types of the first: the results are the same to the bit.
TEST_P(MixedTraining, RecomputationChangesNothing) {
  DeviceJob spec = ClassifierJob("recomputed", /*dropout=*/true, kSteps);
  spec.training.precision = GetParam();
  UsePlan(spec, {.stages = 3, .micro_batches = 4}, 2);
  const TrainingResult expected = Train(spec);
  UsePlan(spec, {.stages = 3, .micro_batches = 4, .recompute = true}, 2);
  const TrainingResult result = Train(spec);
  EXPECT_EQ(result.losses, expected.losses);
  EXPECT_EQ(WorstParameter(result, expected), 0);
}

// The halves of a split backward pass, over two micro-batches in flight, add up to the whole one.
TEST_P(MixedTraining, SplitBackwardPassesAddUp) {
  const DeviceJob spec = ClassifierJob("split", /*dropout=*/true, 1);
  const at::Tensor x = Random({16, 12}, 5, at::kFloat);
  const at::Tensor target = x.narrow(1, 0, 5).argmax(1);
  std::vector<ParameterId> ids;
  for (size_t i = 0; i < spec.graph->parameters().size(); ++i)
    ids.push_back(ParameterId(static_cast<int64_t>(i)));
  std::vector<std::vector<at::Tensor>> gradients;
  for (const bool split : {false, true}) {
    auto store = ParameterStore::Load(*spec.graph, ids, spec.weights_path, at::kCPU);
    ASSERT_TRUE(store.ok()) << store.status();
    StageOptions options;
    options.mini_batch = 16;
    options.precision = GetParam();
    options.split_backward = split;
    auto module = StageModule::Create(*spec.graph, WholeGraph(*spec.graph), {}, *store, options);
    ASSERT_TRUE(module.ok()) << module.status();
    (*module)->SetLossScale(split ? 1024 : 512);
    for (const SampleRange range : {SampleRange{0, 8}, SampleRange{8, 16}}) {
      StageModule::Tensors tensors;
      for (const at::Tensor& input : {x, target})
        tensors.inputs.push_back(input.narrow(0, range.begin, range.size()));
      const auto result =
          (*module)->Forward({0, range}, std::move(tensors), StageModule::Keep::kGraph);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->loss.scalar_type(), at::kFloat);
    }
    for (const SampleRange range : {SampleRange{0, 8}, SampleRange{8, 16}}) {
      ASSERT_TRUE(
          (split ? (*module)->BackwardInput({0, range}, {}) : (*module)->Backward({0, range}, {}))
              .ok());
    }
    for (const SampleRange range : {SampleRange{0, 8}, SampleRange{8, 16}}) {
      if (!split) break;
      ASSERT_EQ((*module)->BackwardWeight({0, range}), absl::OkStatus());
    }
    auto& of = gradients.emplace_back();
    for (ParameterId id : ids) {
      EXPECT_EQ((*store)[id].grad().scalar_type(), at::kFloat);
      of.push_back((*store)[id].grad().clone());
    }
  }
  for (size_t i = 0; i < ids.size(); ++i)
    EXPECT_LT(RelativeError(gradients[1][i], 2 * gradients[0][i]), Epsilon(GetParam())) << i;
}

TEST_P(MixedTraining, ParametersStayFloat32) {
  DeviceJob spec = ClassifierJob("types", /*dropout=*/false, 2);
  spec.training.precision = GetParam();
  UsePlan(spec, {.stages = 2, .micro_batches = 2}, 1);
  for (const auto& [name, value] : Train(spec).parameters)
    EXPECT_EQ(value.scalar_type(), at::kFloat) << name;
}

}  // namespace
}  // namespace stagewright::testing
