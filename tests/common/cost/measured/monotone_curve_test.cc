#include "common/cost/measured/monotone_curve.h"

#include <gtest/gtest.h>

#include "tests/support/random.h"

namespace stagewright {
namespace {

using testing::Rng;
using testing::Uniform;

TEST(MonotoneCurve, IsExactAtPointsAndLinearBetween) {
  const MonotoneCurve curve({{1, 10}, {2, 12}, {4, 20}}, false);
  EXPECT_EQ(curve.At(1), 10);
  EXPECT_EQ(curve.At(2), 12);
  EXPECT_EQ(curve.At(3), 16);
  EXPECT_EQ(curve.At(4), 20);
}

TEST(MonotoneCurve, GoesOnBeyondItsEnds) {
  const MonotoneCurve curve({{2, 10}, {4, 20}}, false);
  EXPECT_EQ(curve.At(1), 10);
  EXPECT_EQ(curve.At(8), 40);
}

TEST(MonotoneCurve, OnePointIsAConstantOrAProportion) {
  EXPECT_EQ(MonotoneCurve({{2, 10}}, true).At(8), 10);
  EXPECT_EQ(MonotoneCurve({{2, 10}}, false).At(8), 40);
  EXPECT_EQ(MonotoneCurve({{2, 10}, {4, 11}}, true).At(8), 10);
}

TEST(MonotoneCurve, TakesTheMeanOfPointsThatFall) {
  const MonotoneCurve curve({{1, 10}, {2, 30}, {4, 20}, {8, 40}}, false);
  EXPECT_EQ(curve.At(1), 10);
  EXPECT_EQ(curve.At(2), 25);
  EXPECT_EQ(curve.At(3), 25);
  EXPECT_EQ(curve.At(4), 25);
  EXPECT_EQ(curve.At(8), 40);
}

TEST(MonotoneCurveProperty, NeverFallsAndKeepsTheSum) {
  Rng rng(7);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<std::pair<double, double>> points;
    double sum = 0;
    const int n = static_cast<int>(Uniform(rng, 1, 9));
    for (int i = 0; i < n; ++i) {
      points.emplace_back(1 << i, static_cast<double>(Uniform(rng, 0, 1000)));
      sum += points.back().second;
    }
    const MonotoneCurve curve(points, false);
    for (const auto& [x, y] : points) sum -= curve.At(x);
    EXPECT_NEAR(sum, 0, 1e-6);
    for (double x = 0.5; x < 1024; x *= 1.25) EXPECT_LE(curve.At(x), curve.At(1.25 * x) + 1e-9);
  }
}

}  // namespace
}  // namespace stagewright
