#include "worker_daemon/device/efficiency_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "common/topology/device_kind.h"

namespace stagewright {
namespace {

DeviceKind KindWith(EfficiencyCurve curve, double peak) {
  DeviceKind kind;
  kind.name = "measured";
  kind.flops_per_second = peak;
  kind.memory_bytes_per_second = 1e10;
  kind.efficiency = {std::move(curve)};
  return kind;
}

// Work of ascending sizes that took about as long as at `rate`, up to ten times more or less.
std::vector<TimedWork> NoisyTimes(std::mt19937_64& random, double rate) {
  std::uniform_real_distribution<double> noise(-1, 1), growth(1.5, 9);
  std::vector<TimedWork> timed;
  double flops = 1e5;
  for (int i = 0; i < 4; ++i) {
    flops *= growth(random);
    timed.push_back({flops, flops / rate * std::pow(10, noise(random))});
  }
  return timed;
}

TEST(EfficiencyFitTest, WhateverTheTimesTheCurveIsOne) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> rates(1e9, 1e12);
  for (int i = 0; i < 20'000; ++i) {
    const double peak = rates(random), fastest = i % 2 == 0 ? peak : kPeakShare * peak;
    const EfficiencyCurve curve = CurveOf(NoisyTimes(random, fastest), peak, fastest);
    ASSERT_EQ(curve.points.size(), 4u);
    ASSERT_EQ(CheckKind(KindWith(curve, peak), "kind"), absl::OkStatus()) << i;
    for (const EfficiencyPoint& point : curve.points)
      ASSERT_LE(point.share, fastest / peak * (1 + 1e-9));
  }
}

TEST(EfficiencyFitTest, TimesWithoutNoiseAreKept) {
  const EfficiencyCurve curve = CurveOf({{1e6, 1e-4}, {1e8, 2e-3}}, 1e11, 6e10);
  ASSERT_EQ(curve.points.size(), 2u);
  EXPECT_DOUBLE_EQ(curve.points[0].share, 0.1);
  EXPECT_DOUBLE_EQ(curve.points[1].share, 0.5);
}

TEST(EfficiencyFitTest, LessWorkTakesLessTime) {
  const EfficiencyCurve curve = CurveOf({{1e6, 1}, {1e8, 2e-3}}, 1e11, 6e10);
  EXPECT_LT(1e6 / curve.points[0].share, 1e8 / curve.points[1].share);
}

}  // namespace
}  // namespace stagewright
