#include "worker_daemon/torch/operand_checks.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace stagewright {
namespace {

using ::testing::HasSubstr;

absl::Status Check(const char* name, const char* overload, torch::jit::Stack stack) {
  const auto handle = c10::Dispatcher::singleton().findSchema({name, overload});
  const OperandCheck check = OperandCheckOf(name);
  if (!handle.has_value() || check == nullptr) return absl::NotFoundError(name);
  return check(handle->schema(), stack);
}

c10::List<at::Tensor> List(const std::vector<at::Tensor>& tensors) {
  return c10::List<at::Tensor>(tensors);
}

TEST(OperandChecks, OperatorsThatCheckForThemselvesHaveNone) {
  for (const char* name : {"aten::linear", "aten::batch_norm", "aten::stack"})
    EXPECT_EQ(OperandCheckOf(name), nullptr) << name;
}

TEST(OperandChecks, StackTakesTensorsOfOneShape) {
  const at::Tensor a = at::zeros({2, 3}), b = at::zeros({3, 2});
  EXPECT_TRUE(Check("aten::_stack", "", {List({a, a}), 0}).ok());
  EXPECT_THAT(Check("aten::_stack", "", {List({}), 0}).message(),
              HasSubstr("\"tensors\" is empty"));
  EXPECT_THAT(Check("aten::_stack", "", {List({a, b}), 0}).message(), HasSubstr("shapes"));
}

TEST(OperandChecks, BatchNormTakesANumberForEachChannel) {
  const at::Tensor x = at::ones({2, 3, 4}), each = at::ones({3}), few = at::ones({2});
  const auto check = [&](const at::Tensor& input, c10::IValue weight, c10::IValue mean,
                         bool training) {
    return Check("aten::native_batch_norm", "",
                 {input, std::move(weight), each, mean, mean, training, 0.1, 1e-5});
  };
  EXPECT_TRUE(check(x, each, each, false).ok());
  EXPECT_TRUE(check(x, c10::IValue(), c10::IValue(), true).ok());
  EXPECT_THAT(check(x, few, each, true).message(), HasSubstr("\"weight\""));
  EXPECT_THAT(check(x, each, few, true).message(), HasSubstr("\"running_mean\""));
  EXPECT_THAT(check(x, each, c10::IValue(), false).message(), HasSubstr("training is off"));
  EXPECT_THAT(check(at::ones({4}), each, each, true).message(), HasSubstr("\"input\""));
  EXPECT_THAT(check(at::ones({0, 3}), each, each, true).message(), HasSubstr("\"input\""));
  EXPECT_TRUE(
      Check("aten::_native_batch_norm_legit", "no_stats", {x, each, each, true, 0.1, 1e-5}).ok());
}

TEST(OperandChecks, WeightNormTakesANumberForEachSlice) {
  const at::Tensor v = at::ones({2, 3});
  const auto check = [&](const at::Tensor& values, const at::Tensor& g, int64_t dim,
                         const char* name = "aten::_weight_norm") {
    return Check(name, "", {values, g, dim});
  };
  EXPECT_TRUE(check(v, at::ones({2, 1}), 0).ok());
  EXPECT_TRUE(check(v, at::ones({1, 3}), 1).ok());
  EXPECT_THAT(check(v, at::ones({1, 3}), 0).message(), HasSubstr("\"g\""));
  EXPECT_THAT(check(v, at::ones({2, 1}), 2, "aten::_weight_norm_interface").message(),
              HasSubstr("\"dim\""));
  EXPECT_TRUE(check(v, at::ones({}), -1).ok()) << "one number for all";
  EXPECT_TRUE(check(at::ones({2, 3, 4}), at::ones({1, 3, 1}), 1).ok());
  EXPECT_THAT(check(at::ones({0, 3}), at::ones({0, 1}), 0).message(), HasSubstr("\"v\""));
}

TEST(OperandChecks, RecurrentLayersTakeTheirWeights) {
  const at::Tensor x = at::ones({2, 3, 4});
  const auto check = [&](const char* name, size_t params, int64_t layers, bool both_ways) {
    const std::vector<at::Tensor> weights(params, x);
    torch::jit::Stack stack = {x, x, List(weights), true, layers, 0.0, false, both_ways, false};
    if (name == std::string("aten::lstm")) stack[1] = List({x, x});
    return Check(name, "input", stack);
  };
  EXPECT_TRUE(check("aten::gru", 8, 2, false).ok());
  EXPECT_TRUE(check("aten::lstm", 8, 1, true).ok());
  EXPECT_TRUE(check("aten::lstm", 5, 1, false).ok()) << "with a projection";
  EXPECT_THAT(check("aten::rnn_tanh", 5, 1, false).message(), HasSubstr("5 tensors, 1 layers"));
  EXPECT_THAT(check("aten::lstm", 0, -100, true).message(), HasSubstr("\"num_layers\""));
}

}  // namespace
}  // namespace stagewright
