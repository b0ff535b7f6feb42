#include "worker_daemon/torch/gradient_layout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

namespace stagewright {
namespace {

// The strides with which a gradient comes to the operator that gave `result`, and the gradient of
// what it read: twice as much.
struct Came {
  std::vector<int64_t> strides;
  at::Tensor gradient;
};
Came Send(const at::Tensor& gradient, bool keep) {
  const at::Tensor x = at::ones({2, 3, 4, 5}).requires_grad_();
  const at::Tensor result = (x * 2).transpose(1, 2);
  Came came;
  if (keep) KeepGradientLayout(result);
  result.register_hook([&came](const at::Tensor& sent) {
    came.strides = sent.strides().vec();
    return sent;
  });
  result.backward(gradient);
  came.gradient = x.grad();
  return came;
}

TEST(GradientLayout, GradientsComeAsTheResultLies) {
  const std::vector<int64_t> own = at::empty({2, 3, 4, 5}).transpose(1, 2).strides().vec();
  const at::Tensor contiguous = at::rand({2, 4, 3, 5});
  EXPECT_NE(Send(contiguous, false).strides, own);
  const Came came = Send(contiguous, true);
  EXPECT_EQ(came.strides, own);
  EXPECT_TRUE(at::equal(came.gradient, Send(contiguous, false).gradient));
  // One value for all, as the gradient of a sum comes.
  EXPECT_EQ(Send(at::ones({}).expand({2, 4, 3, 5}), true).strides, own);
}

TEST(GradientLayout, WhatLiesSoAlreadyIsNotCopied) {
  const at::Tensor gradient = at::rand({2, 3, 4, 5}).transpose(1, 2);
  const at::Tensor x = at::ones({2, 3, 4, 5}).requires_grad_();
  const at::Tensor result = (x * 2).transpose(1, 2);
  KeepGradientLayout(result);
  const void* data = nullptr;
  result.register_hook([&data](const at::Tensor& came) {
    data = came.data_ptr();
    return came;
  });
  result.backward(gradient);
  EXPECT_EQ(data, gradient.data_ptr());
}

TEST(GradientLayout, NothingWithoutAGradientOrWhereElementsOverlap) {
  KeepGradientLayout(at::ones({2, 3}));
  const at::Tensor x = at::ones({3}).requires_grad_();
  const at::Tensor wide = (x * 2).expand({2, 3});
  KeepGradientLayout(wide);
  wide.backward(at::ones({2, 3}));
  EXPECT_TRUE(at::equal(x.grad(), at::full({3}, 4.0)));
}

}  // namespace
}  // namespace stagewright
