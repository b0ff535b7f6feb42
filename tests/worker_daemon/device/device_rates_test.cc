#include "worker_daemon/device/device_rates.h"

#include <gtest/gtest.h>

#include "common/topology/device_kind.h"

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
}

}  // namespace
}  // namespace stagewright
