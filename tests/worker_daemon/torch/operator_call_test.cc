#include "worker_daemon/torch/operator_call.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/worker_daemon/support/runnable_graphs.h"

namespace stagewright::testing {
namespace {

using ::testing::HasSubstr;

TEST(OperatorCall, GroupNormInAnyLayoutGivesTheGradientsOfItsParametersAlone) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 4, 3, 3});
  const int weight = make.AddInput("weight", {-1});
  const int norm =
      make.AddNode("aten.group_norm.default", {In(x), Int(2), In(weight)}, {Meta({-1, 4, 3, 3})});
  const int loss = make.AddNode("aten.mean.default", {Value(norm)}, {Meta({})});
  const Graph graph = make.Finish(loss, norm, LossReduction::kMean);
  const auto call = OperatorCall::Bind(graph.nodes()[0], at::kCPU, true, {});
  ASSERT_TRUE(call.ok()) << call.status();

  const at::Tensor input = Random({4, 4, 3, 3}, 1), gradient = Random({4, 4, 3, 3}, 2);
  std::vector<at::Tensor> found;
  for (const auto layout : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const at::Tensor laid_out = input.contiguous(layout);
    at::Tensor scale = Random({4}, 3).requires_grad_();
    std::vector<at::Tensor> outputs;
    const TensorSource tensors = [&](const Argument& argument) -> const at::Tensor& {
      return std::get<InputId>(argument.value) == InputId(0) ? laid_out : scale;
    };
    const absl::Status status = call->Run(4, tensors, outputs);
    ASSERT_TRUE(status.ok()) << status;
    found.push_back(torch::autograd::grad({outputs[0]}, {scale}, {gradient})[0]);
  }
  EXPECT_LT(RelativeError(found[1], found[0]), 1e-14);
}

// LibTorch takes any number for its enumerations and crashes for some.
TEST(OperatorCall, ANumberThatNamesNoTypeOrLayoutIsRefused) {
  const auto bind = [](const char* argument, Argument value) {
    Node node;
    node.name = "n";
    node.target = "aten.ones.default";
    node.kwargs = {{"size", {Argument::List{{SymInt{0, 2}}}}}, {argument, std::move(value)}};
    return OperatorCall::Bind(node, at::kCPU, true, {}).status();
  };
  EXPECT_TRUE(bind("dtype", {DType::kInt64}).ok());
  EXPECT_TRUE(bind("layout", {SymInt{0, 0}}).ok());
  EXPECT_THAT(bind("dtype", {SymInt{0, 100}}).message(), HasSubstr("\"dtype\" is 100"));
  EXPECT_THAT(bind("layout", {SymInt{0, 1}}).message(), HasSubstr("\"layout\" is 1"));
  EXPECT_THAT(bind("layout", {DType::kBool}).message(), HasSubstr("\"layout\""));
}

}  // namespace
}  // namespace stagewright::testing
