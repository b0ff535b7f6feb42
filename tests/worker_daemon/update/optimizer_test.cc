#include "worker_daemon/update/optimizer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/checkout/source_path.h"
#include "tests/worker_daemon/support/runnable_graphs.h"

namespace stagewright::testing {
namespace {

using nlohmann::json;

json Reference() {
  std::ifstream file(SourcePath("tests/worker_daemon/update/optimizer_reference.json"));
  return json::parse(file);
}

OptimizerSpec ConfigOf(const json& test_case) {
  const json& options = test_case["options"];
  OptimizerSpec config;
  config.kind = test_case["kind"] != "SGD"          ? Optimizer::kAdam
                : options.value("momentum", 0.) > 0 ? Optimizer::kSgdMomentum
                                                    : Optimizer::kSgd;
  config.learning_rate = options.value("lr", config.learning_rate);
  config.weight_decay = options.value("weight_decay", config.weight_decay);
  config.momentum = options.value("momentum", config.momentum);
  config.epsilon = options.value("eps", config.epsilon);
  config.nesterov = options.value("nesterov", false);
  config.decoupled_weight_decay = test_case["kind"] == "AdamW";
  if (config.decoupled_weight_decay) config.weight_decay = options.value("weight_decay", 0.01);
  if (options.contains("betas")) {
    config.beta1 = options["betas"][0];
    config.beta2 = options["betas"][1];
  }
  return config;
}

at::Tensor ToTensor(const json& values, at::ScalarType dtype) {
  return at::tensor(values.get<std::vector<double>>(), at::kDouble).to(dtype);
}

// A store with the one parameter of a graph.
ParameterStore OneParameter(const at::Tensor& start) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, start.numel()});
  const int weight = make.AddParameter("weight", {start.numel()});
  const int product =
      make.AddNode("aten.mul.Tensor", {In(x), Param(weight)}, {Meta({-1, start.numel()})});
  const int loss = make.AddNode("aten.sum.default", {Value(product)}, {Meta({})});
  if (start.scalar_type() == at::kFloat) make.data.parameters[0].dtype = DType::kFloat32;
  const Graph graph = make.Finish(loss);
  const std::string path = TempPath("optimizer_test.safetensors");
  WriteTensors(path, {{"weight", start}});
  auto store = ParameterStore::Load(graph, {ParameterId(0)}, path, at::kCPU);
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

class AgainstPyTorch : public ::testing::TestWithParam<std::string> {};

TEST_P(AgainstPyTorch, GivesTheSameParameters) {
  const json reference = Reference();
  const json& test_case = reference["cases"][GetParam()];
  const at::ScalarType dtype = test_case["dtype"] == "float64" ? at::kDouble : at::kFloat;
  const ParameterStore store = OneParameter(ToTensor(test_case["start"], dtype));
  const OptimizerSpec config = ConfigOf(test_case);
  ASSERT_TRUE(Check(config).ok());
  ParameterOptimizer optimizer(config, store);
  at::Tensor parameter = store[ParameterId(0)];
  for (size_t step = 0; step < test_case["gradients"].size(); ++step) {
    if (step != reference["skipped"]) {
      parameter.mutable_grad() = ToTensor(test_case["gradients"][step], dtype);
    }
    optimizer.Step({ParameterId(0)}, static_cast<int64_t>(step));
    EXPECT_FALSE(parameter.grad().defined());
  }
  const at::Tensor expected = ToTensor(test_case["end"], dtype);
  EXPECT_LE(RelativeError(parameter.detach(), expected), dtype == at::kDouble ? 1e-15 : 1e-7);
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  const json reference = Reference();
  for (const auto& [name, test_case] : reference["cases"].items()) names.push_back(name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, AgainstPyTorch, ::testing::ValuesIn(Names()),
                         [](const auto& param_info) { return param_info.param; });

// Devices that each have a share do together what one does that has all, and write its state.
TEST_P(AgainstPyTorch, SharesMakeTheWhole) {
  const json reference = Reference();
  const json& test_case = reference["cases"][GetParam()];
  const at::ScalarType dtype = test_case["dtype"] == "float64" ? at::kDouble : at::kFloat;
  const at::Tensor start = ToTensor(test_case["start"], dtype);
  const at::Tensor expected = ToTensor(test_case["end"], dtype);
  const int64_t cut = start.numel() / 3;
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, cut},
                                   {cut, start.numel()},
                                   {start.numel(), start.numel()}}) {
    const ParameterStore store = OneParameter(start);
    ParameterOptimizer optimizer(ConfigOf(test_case), store);
    optimizer.SetShares({{ParameterId(0), begin, end}});
    at::Tensor parameter = store[ParameterId(0)];
    for (size_t step = 0; step < test_case["gradients"].size(); ++step) {
      if (step != reference["skipped"])
        parameter.mutable_grad() = ToTensor(test_case["gradients"][step], dtype);
      optimizer.Step({ParameterId(0)}, static_cast<int64_t>(step));
      EXPECT_FALSE(parameter.grad().defined());
    }
    const at::Tensor found = parameter.detach();
    at::Tensor mixed = start.clone();
    mixed.narrow(0, begin, end - begin).copy_(expected.narrow(0, begin, end - begin));
    EXPECT_LE(RelativeError(found, mixed), dtype == at::kDouble ? 1e-15 : 1e-7);
    for (const auto& [name, state] : optimizer.StateOf(ParameterId(0))) {
      if (name == "step") {
        EXPECT_EQ(begin, 0);
      } else {
        EXPECT_EQ(state.numel(), end - begin) << name;
      }
    }
  }
}

// Several devices may have an empty share: were it saved after it was restored, all of them would
// save the same.
TEST(ParameterOptimizer, AnEmptyShareHasNoStateOnceItIsRestored) {
  OptimizerSpec config;
  config.kind = Optimizer::kAdam;
  const ParameterStore store = OneParameter(at::ones({1}, at::kDouble));
  const std::map<std::string, at::Tensor> state = {{"step", at::scalar_tensor(3.0, at::kFloat)},
                                                   {"exp_avg", at::ones({1}, at::kDouble)},
                                                   {"exp_avg_sq", at::ones({1}, at::kDouble)}};
  for (const int64_t begin : {0, 1}) {
    ParameterOptimizer optimizer(config, store);
    optimizer.SetShares({{ParameterId(0), begin, 1}});
    ASSERT_TRUE(optimizer.Restore(ParameterId(0), state).ok());
    EXPECT_EQ(optimizer.StateOf(ParameterId(0)).empty(), begin == 1);
  }
}

// One parameter after one step with gradient 1, from 1.
double AfterOneStep(const OptimizerSpec& config, std::vector<int> groups, int64_t step) {
  const ParameterStore store = OneParameter(at::ones({1}, at::kDouble));
  ParameterOptimizer optimizer(config, store, std::move(groups));
  at::Tensor parameter = store[ParameterId(0)];
  parameter.mutable_grad() = at::ones({1}, at::kDouble);
  optimizer.Step({ParameterId(0)}, step);
  return parameter.item<double>();
}

TEST(ParameterOptimizer, TakesDecayAndRateOfItsGroup) {
  OptimizerSpec config;
  config.learning_rate = 0.1;
  config.weight_decay = 0.5;
  config.groups = {{"*.bias", 0, 1}, {"*", 0.25, 2}};
  EXPECT_DOUBLE_EQ(AfterOneStep(config, {-1}, 0), 1 - 0.1 * 1.5);
  EXPECT_DOUBLE_EQ(AfterOneStep(config, {0}, 0), 1 - 0.1);
  EXPECT_DOUBLE_EQ(AfterOneStep(config, {1}, 0), 1 - 0.2 * 1.25);
}

TEST(ParameterOptimizer, TakesTheRateOfItsStep) {
  OptimizerSpec config;
  config.learning_rate = 0.1;
  config.schedule = {Decay::kStep, 0, 0, 0, 2, 0.5};
  EXPECT_DOUBLE_EQ(AfterOneStep(config, {}, 1), 0.9);
  EXPECT_DOUBLE_EQ(AfterOneStep(config, {}, 5), 1 - 0.1 / 4);
}

}  // namespace
}  // namespace stagewright::testing
