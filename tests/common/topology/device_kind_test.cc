#include "common/topology/device_kind.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace stagewright {
namespace {

DeviceKind Kind() {
  DeviceKind kind = {"k", 1e12, 1e11, 1000, 1e9};
  kind.bf16_flops_per_second = 8e12;
  return kind;
}

double Seconds(const DeviceKind& kind, double flops, ProductKind operators = ProductKind::kMatmul,
               ProductType type = ProductType::kFloat32) {
  return ProductSeconds(kind, operators, type, flops);
}

TEST(RateOf, IsThatOfFloat32WhereTheDeviceLacksTheType) {
  const DeviceKind kind = Kind();
  EXPECT_EQ(RateOf(kind, ProductType::kFloat32), 1e12);
  EXPECT_EQ(RateOf(kind, ProductType::kTF32), 1e12);
  EXPECT_EQ(RateOf(kind, ProductType::kFloat16), 1e12);
  EXPECT_EQ(RateOf(kind, ProductType::kBFloat16), 8e12);
}

TEST(ProductSeconds, WithoutCurvesHalfOfTheShareIsReachedAtTheHalfEfficiency) {
  const DeviceKind kind = Kind();
  EXPECT_DOUBLE_EQ(Seconds(kind, 1e9), 1e9 / (1e12 * kPeakShare / 2));
  EXPECT_DOUBLE_EQ(Seconds(kind, 1e9, ProductKind::kAttention, ProductType::kBFloat16),
                   1e9 / (8e12 * kPeakShare / 2));
}

TEST(ProductSeconds, TimeIsAStraightLineBetweenPoints) {
  DeviceKind kind = Kind();
  kind.efficiency = {{{}, {}, {{1e9, 0.1}, {3e9, 0.2}}}};
  EXPECT_DOUBLE_EQ(Seconds(kind, 1e9), 1e9 / 1e11);
  EXPECT_DOUBLE_EQ(Seconds(kind, 3e9), 3e9 / 2e11);
  EXPECT_DOUBLE_EQ(Seconds(kind, 2e9), (10e-3 + 15e-3) / 2);
  EXPECT_DOUBLE_EQ(Seconds(kind, 5e8), 5e-3) << "the first share";
  EXPECT_DOUBLE_EQ(Seconds(kind, 6e9), 30e-3) << "the last share";
  for (double flops = 1e8; flops < 1e10; flops *= 1.1)
    EXPECT_LT(Seconds(kind, flops), Seconds(kind, 1.1 * flops));
}

TEST(ProductSeconds, TakesTheCurveForTheOperatorsThenForTheType) {
  DeviceKind kind = Kind();
  const auto at = [](double share) { return std::vector<EfficiencyPoint>{{1e9, share}}; };
  kind.efficiency = {{{}, {}, at(0.1)},
                     {{}, ProductType::kBFloat16, at(0.2)},
                     {ProductKind::kAttention, {}, at(0.3)},
                     {ProductKind::kAttention, ProductType::kBFloat16, at(0.4)}};
  const auto share = [&](ProductKind operators, ProductType type) {
    return 1e9 / RateOf(kind, type) / Seconds(kind, 1e9, operators, type);
  };
  EXPECT_DOUBLE_EQ(share(ProductKind::kMatmul, ProductType::kFloat32), 0.1);
  EXPECT_DOUBLE_EQ(share(ProductKind::kMatmul, ProductType::kBFloat16), 0.2);
  EXPECT_DOUBLE_EQ(share(ProductKind::kAttention, ProductType::kTF32), 0.3);
  EXPECT_DOUBLE_EQ(share(ProductKind::kAttention, ProductType::kBFloat16), 0.4);
  kind.efficiency.erase(kind.efficiency.begin());
  EXPECT_DOUBLE_EQ(Seconds(kind, 1e9), 2e9 / (1e12 * kPeakShare)) << "no curve is for it";
}

TEST(WithSlowdown, SlowsEveryRateAndFixedCost) {
  DeviceKind kind = Kind();
  kind.kernel_overhead = 100;
  kind.parameter_overhead = 10;
  kind.update_bytes_per_second = 8e11;
  const DeviceKind slow = WithSlowdown(kind, 2, 4);
  EXPECT_EQ(slow.flops_per_second, 0.5e12);
  EXPECT_EQ(slow.bf16_flops_per_second, 4e12);
  EXPECT_EQ(slow.memory_bytes_per_second, 0.25e11);
  EXPECT_EQ(slow.update_bytes_per_second, 2e11);
  EXPECT_EQ(slow.kernel_overhead, 200);
  EXPECT_EQ(slow.parameter_overhead, 20);
  const DeviceKind alone = Alone(slow);
  EXPECT_EQ(alone.flops_per_second, kind.flops_per_second);
  EXPECT_EQ(alone.memory_bytes_per_second, kind.memory_bytes_per_second);
  EXPECT_EQ(alone.kernel_overhead, kind.kernel_overhead);
  EXPECT_EQ(alone.product_slowdown, 1);
}

TEST(UpdateRate, IsThatOfMemoryUntilMeasured) {
  DeviceKind kind = Kind();
  EXPECT_EQ(UpdateRate(kind), kind.memory_bytes_per_second);
  kind.update_bytes_per_second = 8e11;
  EXPECT_EQ(UpdateRate(kind), 8e11);
}

TEST(MessageCost, IsAFixedCostAndThatOfTheBytes) {
  DeviceKind kind = Kind();
  kind.message_overhead = 100;
  EXPECT_EQ(MessageCost(kind, 1000), 100);
  kind.message_bytes_per_second = 1e9;
  EXPECT_EQ(MessageCost(kind, 1000), 1100);
}

TEST(CheckKind, NamesTheField) {
  const double nan = std::nan("");
  const struct {
    std::function<void(DeviceKind&)> spoil;
    const char* message;
  } cases[] = {
      {[](DeviceKind& k) { k.name = ""; }, "kind.name is empty"},
      {[&](DeviceKind& k) { k.bf16_flops_per_second = nan; },
       "kind.bf16_flops_per_second: nan is not a positive number or 0"},
      {[](DeviceKind& k) { k.tf32_flops_per_second = -1; },
       "kind.tf32_flops_per_second: -1 is not a positive number or 0"},
      {[](DeviceKind& k) { k.update_bytes_per_second = -1; },
       "kind.update_bytes_per_second: -1 is not a positive number or 0"},
      {[](DeviceKind& k) { k.message_bytes_per_second = -1; },
       "kind.message_bytes_per_second: -1 is not a positive number or 0"},
      {[](DeviceKind& k) { k.product_slowdown = 0.5; },
       "kind.product_slowdown: 0.5 is not from 1 to 10000"},
      {[&](DeviceKind& k) { k.memory_slowdown = nan; },
       "kind.memory_slowdown: nan is not from 1 to 10000"},
      {[](DeviceKind& k) { k.reduction_overhead = -1; },
       "kind.reduction_overhead_ns: -1 ns is negative or over an hour"},
      {[](DeviceKind& k) { k.flops_per_second = 0; },
       "kind.flops_per_second: 0 is not a positive number"},
      {[](DeviceKind& k) { k.efficiency[0].points.clear(); }, "kind.efficiency[0].points is empty"},
      {[&](DeviceKind& k) { k.efficiency[0].points[1].flops = nan; },
       "kind.efficiency[0].points[1].flops: nan is not a positive number"},
      {[](DeviceKind& k) { k.efficiency[0].points[1].flops = 1e9; },
       "kind.efficiency[0].points[1].flops: 1e+09 is not above that of the point before"},
      {[](DeviceKind& k) { k.efficiency[0].points[0].share = 1.5; },
       "kind.efficiency[0].points[0].share: 1.5 is not above 0 and at most 1"},
      {[&](DeviceKind& k) { k.efficiency[0].points[0].share = nan; },
       "kind.efficiency[0].points[0].share: nan is not above 0 and at most 1"},
      {[](DeviceKind& k) { k.efficiency[0].points[1].share = 0.9; },
       "kind.efficiency[0].points[1].share: 0.9 makes an operator faster than one of less work, "
       "of the point before"},
      {[](DeviceKind& k) { k.efficiency.push_back(k.efficiency[0]); },
       "kind.efficiency[1] is for the same operators and type as efficiency[0]"},
  };
  DeviceKind good = Kind();
  good.efficiency = {{{}, {}, {{1e9, 0.1}, {2e9, 0.2}}}};
  EXPECT_EQ(CheckKind(good, "kind"), absl::OkStatus());
  for (const auto& c : cases) {
    DeviceKind bad = good;
    c.spoil(bad);
    EXPECT_EQ(CheckKind(bad, "kind"), absl::InvalidArgumentError(c.message));
  }
}

}  // namespace
}  // namespace stagewright
