#include "tests/worker_daemon/support/mixed_models.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <random>

#include "common/cost/analytic.h"
#include "common/cost/cost_model.h"
#include "common/lowering/lower.h"
#include "common/validation/validate.h"
#include "tests/worker_daemon/support/runnable_graphs.h"

namespace stagewright::testing {
namespace {

constexpr int64_t kMiniBatch = 16;
constexpr int64_t kSamples = 64;
constexpr int64_t kFeatures = 12, kWidth = 32, kClasses = 5;

}  // namespace

void ToFloat32(GraphMaker& make) {
  const auto convert = [](TensorMeta& meta) {
    if (meta.dtype == DType::kFloat64) meta.dtype = DType::kFloat32;
  };
  for (auto& input : make.data.inputs) convert(input.meta);
  for (Parameter& parameter : make.data.parameters) parameter.dtype = DType::kFloat32;
  for (Node& node : make.data.nodes) {
    for (TensorMeta& meta : node.outputs) convert(meta);
  }
}

Graph ResidualClassifier(bool dropout) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, kFeatures});
  const int target = make.AddInput("target", {-1}, DType::kInt64);
  make.data.inputs[target].role = InputRole::kTarget;
  const int tied = make.AddParameter("tied", {kWidth, kWidth});
  int last = make.AddLinear("stem", In(x), kFeatures, kWidth);
  for (const char* name : {"one", "two", "three"}) {
    const std::string block = name;
    const int scale = make.AddParameter(block + ".norm.weight", {kWidth});
    const int shift = make.AddParameter(block + ".norm.bias", {kWidth});
    const int norm = make.AddNode("aten.layer_norm.default",
                                  {Value(last), List({Int(kWidth)}), Param(scale), Param(shift)},
                                  {Meta({-1, kWidth})});
    const int wide = make.AddLinear(block + ".in", Value(norm), kWidth, kWidth);
    int inner = make.AddNode("aten.gelu.default", {Value(wide)}, {Meta({-1, kWidth})});
    if (dropout) {
      inner = make.AddNode("aten.dropout.default", {Value(inner), Real(0.2), Bool(true)},
                           {Meta({-1, kWidth})});
    }
    const int out =
        make.AddNode("aten.linear.default", {Value(inner), Param(tied)}, {Meta({-1, kWidth})});
    last = make.AddNode("aten.add.Tensor", {Value(last), Value(out)}, {Meta({-1, kWidth})});
  }
  const int head = make.AddLinear("head", Value(last), kWidth, kClasses);
  const int loss =
      make.AddNode("aten.cross_entropy_loss.default", {Value(head), In(target)}, {Meta({})});
  ToFloat32(make);
  return make.Finish(loss, head);
}

DeviceJob ClassifierJob(const std::string& stem, bool dropout, int64_t steps) {
  at::set_num_threads(1);
  DeviceJob spec;
  spec.graph = std::make_shared<const Graph>(ResidualClassifier(dropout));
  spec.weights_path = WriteWeights(*spec.graph, stem + "_weights.safetensors");
  spec.data_path = TempPath(stem + "_data.safetensors");
  const at::Tensor x = Random({kSamples, kFeatures}, 5, at::kFloat);
  WriteTensors(spec.data_path, {{"x", x}, {"target", x.narrow(1, 0, kClasses).argmax(1)}});
  spec.training.optimizer.learning_rate = 0.05;
  spec.training.optimizer.kind = Optimizer::kSgdMomentum;
  spec.steps = steps;
  spec.seed = 3;
  spec.step_timeout = absl::Seconds(30);
  return spec;
}

void UsePlan(DeviceJob& spec, StrategyShape shape, uint64_t seed, OptimizerSharding sharding) {
  shape.mini_batch = kMiniBatch;
  std::mt19937_64 random(seed);
  Strategy strategy = ForceStrategy(*spec.graph, shape, random);
  strategy.optimizer_sharding = sharding;
  const auto costs = MakeAnalyticCostModel(*spec.graph, spec.training.precision);
  auto program = Lower(*spec.graph, strategy, *costs,
                       {.training = true, .gradient_norm = NeedsGradientNorm(spec.training)});
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_EQ(Validate(*program, {}), absl::OkStatus());
  spec.program = std::make_shared<const Program>(*std::move(program));
}

void UseOneDevice(DeviceJob& spec, int64_t micro_batches) {
  UsePlan(spec, {.stages = 1, .micro_batches = micro_batches}, 1);
}

}  // namespace stagewright::testing
