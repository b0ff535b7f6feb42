#include "planner_service/links/link_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace stagewright {
namespace {

using ::testing::HasSubstr;

// Times of a link with these rates, each off by a share of `noise` in turn to either side.
std::vector<LinkSample> SamplesOf(double latency, double bytes_per_second, double noise) {
  std::vector<LinkSample> samples;
  for (const int64_t size : {64, 4096, 32768, 131072, 524288}) {
    const double exact = latency + static_cast<double>(size) / bytes_per_second * 1e9;
    const double sign = samples.size() % 2 == 0 ? 1 : -1;
    samples.push_back({Bytes(size), Nanos(exact * (1 + sign * noise))});
  }
  return samples;
}

TEST(FitLink, FindsTheRatesOfAnExactLine) {
  const LinkRates rates = FitLink(SamplesOf(25000, 4e9, 0)).value();
  EXPECT_NEAR(static_cast<double>(rates.latency), 25000, 5);
  EXPECT_NEAR(rates.bytes_per_second, 4e9, 1e6);
}

TEST(FitLink, SmallMessagesCountAsMuchAsLargeOnes) {
  const LinkRates rates = FitLink(SamplesOf(25000, 4e9, 0.05)).value();
  EXPECT_NEAR(static_cast<double>(rates.latency), 25000, 0.06 * 25000);
  EXPECT_NEAR(rates.bytes_per_second, 4e9, 0.08 * 4e9);
}

TEST(FitLink, TheLatencyIsNotNegative) {
  const std::vector<LinkSample> samples = {{1000, 10}, {2000, 2000}, {4000, 5000}};
  const LinkRates rates = FitLink(samples).value();
  EXPECT_EQ(rates.latency, 0);
  EXPECT_GT(rates.bytes_per_second, 0);
}

TEST(FitLink, FiguresThatCannotBeAreNamed) {
  const auto error = [](std::vector<LinkSample> samples) {
    return std::string(FitLink(samples).status().message());
  };
  EXPECT_THAT(error({}), HasSubstr("fewer than two sizes"));
  EXPECT_THAT(error({{64, 10}, {64, 12}}), HasSubstr("fewer than two sizes"));
  EXPECT_THAT(error({{64, 0}, {4096, 12}}), HasSubstr("0 ns for a message of 64 bytes"));
  EXPECT_THAT(error({{64, 10}, {4096, -12}}), HasSubstr("-12 ns for a message of 4096 bytes"));
  EXPECT_THAT(error({{-1, 10}, {4096, 12}}), HasSubstr("-1 bytes"));
  EXPECT_THAT(error({{64, 10}, {4096, 61 * kSecond}}), HasSubstr("61000000000 ns"));
  EXPECT_THAT(error({{64, 5000}, {4096, 3000}, {65536, 200}}), HasSubstr("do not grow"));
}

}  // namespace
}  // namespace stagewright
