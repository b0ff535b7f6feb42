#include "worker_daemon/device/device_rates.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include "common/topology/device_kind.h"
#include "worker_daemon/device/work_clock.h"

namespace stagewright {
namespace {

// Whatever the machine does besides, these are rates of a computer.
TEST(DeviceRates, EveryTypeOfProductsHasARateOfItsOwn) {
  const DeviceKind kind = MeasureDeviceRates("cpu", "this");
  EXPECT_EQ(kind.name, "this");
  for (const double rate :
       {kind.flops_per_second, kind.bf16_flops_per_second, kind.fp16_flops_per_second}) {
    EXPECT_GT(rate, 1e6);
    EXPECT_LT(rate, 1e16);
  }
  EXPECT_NE(kind.bf16_flops_per_second, kind.flops_per_second);
  EXPECT_EQ(RateOf(kind, ProductType::kBFloat16), kind.bf16_flops_per_second);
  EXPECT_EQ(kind.tf32_flops_per_second, 0) << "processors have no such products";
  EXPECT_TRUE(kind.adds_gradients);
  EXPECT_GT(kind.memory_bytes_per_second, 1e6);
  EXPECT_GT(kind.kernel_overhead, 0);
  EXPECT_GE(kind.half_efficiency_flops, 0);
  EXPECT_FALSE(kind.asynchronous);
  EXPECT_EQ(kind.unaligned_slowdown, 1) << "processors have no tensor cores";
  EXPECT_TRUE(CheckKind(kind, "kind").ok()) << CheckKind(kind, "kind");
}

// Types without instructions of their own are many times slower than float32, and small products
// in them are no slower than large ones: neither may be taken for the other.
TEST(DeviceRates, ProductsInSixteenBitsAreAsLongAsPredicted) {
  at::set_num_threads(1);  // As jobs on CPUs have.
  const at::NoGradGuard no_grad;
  const DeviceKind kind = MeasureDeviceRates("cpu", "this");
  KernelTimer timer(at::kCPU);
  const struct {
    ProductType product;
    at::ScalarType type;
  } types[] = {{ProductType::kBFloat16, at::kBFloat16}, {ProductType::kFloat16, at::kHalf}};
  for (const auto& [product, type] : types) {
    for (const int64_t width : {32, 96, 200}) {
      const at::Tensor a = at::randn({64, width}).to(type), w = at::randn({width, width}).to(type);
      const double measured = timer.Fastest(5, [&] { return at::linear(a, w); }) +
                              timer.Fastest(5, [&] { return at::mm(a, w); }) +
                              timer.Fastest(5, [&] { return at::mm(a.t(), a); });
      const double flops = 2.0 * 64 * static_cast<double>(width * width);
      const double predicted = 3 * (ToSeconds(kind.kernel_overhead) +
                                    ProductSeconds(kind, ProductKind::kMatmul, product, flops));
      EXPECT_LT(predicted, 4 * measured) << width;
      EXPECT_GT(predicted, measured / 4) << width;
    }
  }
}

// Convolutions have kernels of their own, which reach other rates than layers' products.
TEST(DeviceRates, ConvolutionsAreAsLongAsPredicted) {
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  const DeviceKind kind = MeasureDeviceRates("cpu", "this");
  KernelTimer timer(at::kCPU);
  const std::vector<int64_t> one = {1, 1};
  for (const int64_t channels : {16, 24, 48}) {
    const at::Tensor x = at::randn({8, channels, 16, 16});
    const at::Tensor w = at::randn({channels, channels, 3, 3});
    const double measured =
        timer.Fastest(5, [&] { return at::conv2d(x, w, {}, one, one); }) + timer.Fastest(5, [&] {
          return std::get<1>(at::convolution_backward(x, x, w, at::OptionalIntArrayRef(), one, one,
                                                      one, false, {0, 0}, 1, {true, true, false}));
        });
    const double flops = 2.0 * 8 * 16 * 16 * 9 * static_cast<double>(channels * channels);
    const double predicted =
        3 * (ToSeconds(kind.kernel_overhead) +
             ProductSeconds(kind, ProductKind::kConvolution, ProductType::kTF32, flops));
    EXPECT_LT(predicted, 2 * measured) << channels;
    EXPECT_GT(predicted, measured / 2) << channels;
  }
}

}  // namespace
}  // namespace stagewright
