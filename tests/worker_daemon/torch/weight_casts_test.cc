#include "worker_daemon/torch/weight_casts.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>
#include <memory>
#include <utility>

#include "tests/worker_daemon/support/runnable_graphs.h"
#include "worker_daemon/torch/autocast.h"

namespace stagewright::testing {
namespace {

constexpr ParameterId kFirst(0), kSecond(1);

at::Tensor Weight(uint64_t seed) { return Random({6, 6}, seed, at::kFloat).requires_grad_(true); }

TEST(WeightCasts, OneUntilTheWeightChanges) {
  WeightCasts casts(Precision::kBFloat16);
  const at::Tensor weight = Weight(1), other = Weight(2);
  const at::Tensor copy = casts.Get(kFirst, weight);
  EXPECT_EQ(copy.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(copy, weight.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(casts.Get(kSecond, other), other.to(at::kBFloat16)));
  EXPECT_TRUE(casts.Get(kFirst, weight).is_same(copy));
  {
    const at::NoGradGuard no_grad;
    weight.add_(1);
  }
  EXPECT_FALSE(casts.Get(kFirst, weight).is_same(copy));
  EXPECT_TRUE(at::equal(casts.Get(kFirst, weight), weight.to(at::kBFloat16)));
  // Another version of the parameter.
  EXPECT_TRUE(at::equal(casts.Get(kFirst, other), other.to(at::kBFloat16)));
}

TEST(WeightCasts, LeavesOtherTypesAlone) {
  WeightCasts casts(Precision::kFloat16);
  const at::Tensor weight = Random({3}, 1, at::kDouble);
  EXPECT_TRUE(casts.Get(kFirst, weight).is_same(weight));
}

// Calls a function when a parameter has its gradient.
struct Hook : torch::autograd::PostAccumulateGradHook {
  explicit Hook(std::function<void()> called) : function(std::move(called)) {}
  void operator()(const at::Tensor&) override { function(); }
  std::function<void()> function;
};

// Sums over replicas start as soon as a layer's gradient is there, in later micro-batches, too.
TEST(WeightCasts, GradientsComeInTheOrderOfTheBackwardPass) {
  WeightCasts casts(Precision::kBFloat16);
  const AutocastScope scope(at::kCPU, Precision::kBFloat16);
  const at::Tensor first = Weight(1), second = Weight(2);
  const auto forward = [&](uint64_t seed) {
    const at::Tensor x = Random({4, 6}, seed, at::kFloat);
    return at::linear(at::linear(x, casts.Get(kFirst, first)), casts.Get(kSecond, second)).sum();
  };
  torch::autograd::backward({forward(3)}, {});
  const at::Tensor later = forward(4);
  first.mutable_grad() = second.mutable_grad() = at::Tensor();
  bool in_order = false;
  torch::autograd::impl::set_post_acc_grad_hooks(
      second, std::make_unique<Hook>([&] { in_order = !first.grad().defined(); }));
  torch::autograd::backward({later}, {});
  EXPECT_TRUE(in_order);
}

// Two micro-batches, one of which ran forward without a graph first: the gradient is that of a cast
// each.
TEST(WeightCasts, MicroBatchesShareOneAndAddTheirGradients) {
  for (const Precision precision : {Precision::kBFloat16, Precision::kFloat16}) {
    at::Tensor weight = Weight(1), plain = weight.detach().clone().requires_grad_(true);
    WeightCasts casts(precision);
    const AutocastScope scope(at::kCPU, precision);
    {
      const at::NoGradGuard no_grad;
      casts.Get(kFirst, weight);
    }
    std::vector<at::Tensor> with, without;
    for (uint64_t seed : {5, 6}) {
      const at::Tensor x = Random({4, 6}, seed, at::kFloat);
      with.push_back(at::linear(x, casts.Get(kFirst, weight)).sum());
      without.push_back(at::linear(x, plain).sum());
    }
    for (const at::Tensor& loss : with) torch::autograd::backward({loss}, {});
    for (const at::Tensor& loss : without) torch::autograd::backward({loss}, {});
    EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(weight.grad(), plain.grad()));
  }
}

// Every operator that is given a cast weight would have cast it: its result is the same, and of the
// smaller type.
TEST(WeightCasts, AppliesToWhatAutocastCasts) {
  const WeightCasts casts(Precision::kBFloat16);
  for (const char* target :
       {"aten.linear.default", "aten.matmul.default", "aten.mm.default", "aten.bmm.default",
        "aten.addmm.default", "aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default"})
    EXPECT_TRUE(casts.Applies(target)) << target;
  for (const char* target : {"aten.layer_norm.default", "aten.embedding.default", "aten.mul.Tensor",
                             "aten.conv2d.padding", "aten.batch_norm.default"})
    EXPECT_FALSE(casts.Applies(target)) << target;
  EXPECT_FALSE(WeightCasts(Precision::kGraph).Applies("aten.linear.default"));

  const AutocastScope scope(at::kCPU, Precision::kBFloat16);
  const at::Tensor a = Random({2, 3, 3}, 1, at::kFloat), b = Random({2, 3, 3}, 2, at::kFloat);
  const auto lower = [](const at::Tensor& tensor) { return tensor.to(at::kBFloat16); };
  const auto same = [](const at::Tensor& mixed, const at::Tensor& cast) {
    EXPECT_EQ(mixed.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(at::equal(mixed, cast));
  };
  same(at::matmul(a, b), at::matmul(a, lower(b)));
  same(at::bmm(a, b), at::bmm(a, lower(b)));
  same(at::mm(a[0], b[0]), at::mm(a[0], lower(b[0])));
  same(at::linear(a, b[0]), at::linear(a, lower(b[0])));
  same(at::addmm(a[0], a[1], b[0]), at::addmm(lower(a[0]), a[1], lower(b[0])));
  same(at::conv1d(a, b), at::conv1d(a, lower(b)));
  const at::Tensor image = Random({2, 3, 5, 5}, 3, at::kFloat);
  const at::Tensor kernel = Random({4, 3, 2, 2}, 4, at::kFloat);
  same(at::conv2d(image, kernel), at::conv2d(image, lower(kernel)));
  const at::Tensor volume = image.unsqueeze(2), cube = kernel.unsqueeze(2);
  same(at::conv3d(volume, cube), at::conv3d(volume, lower(cube)));
}

}  // namespace
}  // namespace stagewright::testing
