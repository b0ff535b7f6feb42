// Attention on an accelerator, whose backward pass gets gradients in any layout. Which accelerator:
// tested_accelerator.h.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "tests/worker_daemon/executor/accelerated_jobs.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "worker_daemon/torch/operator_call.h"

namespace stagewright::testing {
namespace {

constexpr int64_t kSamples = 2, kHeads = 4, kLength = 64, kWidth = 64;

using AttentionGradient = OnAccelerators;

Graph Attention() {
  GraphMaker make;
  const int input = make.AddInput("x", {-1, kHeads, kLength, kWidth});
  const int attended =
      make.AddNode("aten.scaled_dot_product_attention.default", {In(input), In(input), In(input)},
                   {Meta({-1, kHeads, kLength, kWidth})});
  const int loss = make.AddNode("aten.mean.default", {Value(attended)}, {Meta({})});
  return make.Finish(loss, attended, LossReduction::kMean);
}

// What attention of x to itself gives, and its gradient for one of the result that comes in the
// order of its elements in `gradient`.
struct Attended {
  at::Tensor result, gradient;
  std::vector<int64_t> came;  // Strides of what reaches the operator.
};
Attended Attend(at::Device device, const at::Tensor& x, const at::Tensor& gradient) {
  const Graph graph = Attention();
  Attended found;
  const auto call = OperatorCall::Bind(graph.nodes()[0], device, true, {});
  EXPECT_TRUE(call.ok()) << call.status();
  if (!call.ok()) return found;
  const at::Tensor input = x.to(device).requires_grad_();
  std::vector<at::Tensor> outputs;
  const absl::Status status = call->Run(
      kSamples, [&](const Argument&) -> const at::Tensor& { return input; }, outputs, true);
  EXPECT_TRUE(status.ok()) << status;
  if (!status.ok()) return found;
  found.result = outputs[0];
  outputs[0].register_hook([&found](const at::Tensor& sent) {
    found.came = sent.strides().vec();
    return sent;
  });
  found.gradient = torch::autograd::grad({outputs[0]}, {input}, {gradient})[0].to(at::kCPU);
  return found;
}

// As it comes from a reshape of the result, and from a transposed one.
std::vector<at::Tensor> GradientsInTwoLayouts(at::Device device, const at::Tensor& gradient) {
  const at::Tensor there = gradient.to(device);
  return {there.contiguous(), there.transpose(1, 2).contiguous().transpose(1, 2)};
}

TEST_F(AttentionGradient, ComesAsTheResultLies) {
  const at::Device device(*TestedAccelerator(0));
  const at::Tensor x = Random({kSamples, kHeads, kLength, kWidth}, 1, at::kFloat);
  for (const at::Tensor& gradient :
       GradientsInTwoLayouts(device, Random(x.sizes().vec(), 2, at::kFloat))) {
    const Attended found = Attend(device, x, gradient);
    ASSERT_TRUE(found.result.defined());
    EXPECT_EQ(found.came, found.result.strides().vec());
  }
}

// The second layout must not meet what a library keeps of the first.
TEST_F(AttentionGradient, IsThatOfAProcessorInEitherLayout) {
  const at::Device device(*TestedAccelerator(0));
  const at::Tensor x = Random({kSamples, kHeads, kLength, kWidth}, 1, at::kFloat).to(at::kBFloat16);
  const at::Tensor gradient = Random(x.sizes().vec(), 2, at::kFloat).to(at::kBFloat16);
  const at::Tensor expected =
      Attend(at::kCPU, x.to(at::kFloat), gradient.to(at::kFloat)).gradient.to(at::kDouble);
  for (const at::Tensor& laid_out : GradientsInTwoLayouts(device, gradient)) {
    const at::Tensor found = Attend(device, x, laid_out).gradient.to(at::kDouble);
    EXPECT_LT(RelativeError(found, expected), 0.02);
  }
}

}  // namespace
}  // namespace stagewright::testing
