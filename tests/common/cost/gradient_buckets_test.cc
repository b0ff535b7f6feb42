#include "common/cost/gradient_buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/clusters.h"
#include "tests/support/random.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Sums that take `latency` and one ns a byte.
AllReduceLines Sums(double latency) { return {{latency, 1}, {latency, 2}}; }

TEST(GradientBuckets, AreCutFromTheLastNodeOn) {
  const std::vector<Bytes> gradients = {5, 0, 7, 1, 4, 0};
  EXPECT_THAT(CutGradients(gradients, 1), ElementsAre(GradientBucket{4, 4}, GradientBucket{3, 1},
                                                      GradientBucket{2, 7}, GradientBucket{0, 5}));
  EXPECT_THAT(CutGradients(gradients, 5),
              ElementsAre(GradientBucket{3, 5}, GradientBucket{2, 7}, GradientBucket{0, 5}));
  EXPECT_THAT(CutGradients(gradients, 17), ElementsAre(GradientBucket{0, 17}));
  EXPECT_THAT(CutGradients({}, 5), IsEmpty());
}

TEST(GradientBuckets, APassHasTheNodesBeforeAMarkLeft) {
  const std::vector<double> backward = {3, 0, 4, 1};
  EXPECT_THAT(TimeLeftAt(backward), ElementsAre(0, 3, 3, 7));
}

TEST(GradientBuckets, SumsFollowEachOtherFromTheirMarksOn) {
  const std::vector<double> left = {0, 10, 20};
  const std::vector<GradientBucket> buckets = {{2, 8}, {1, 8}, {0, 8}};
  EXPECT_EQ(ExposedSums(buckets, left, Sums(0)), 8) << "the others are hidden";
  EXPECT_EQ(ExposedSums(buckets, left, Sums(5)), 19) << "13 each from 20 before the end on";
  EXPECT_EQ(ExposedSums({{2, 8}, {1, 1}}, left, Sums(0)), 0) << "hidden";
  EXPECT_EQ(ExposedSums({{1, 24}}, left, Sums(5)), 29) << "one sum follows the pass";
}

TEST(GradientBuckets, UpdatesRunBesideTheLastSum) {
  const std::vector<double> left = {0, 10, 20};
  EXPECT_EQ(UpdateTail({{1, 24}}, left, Sums(5), 12), 29 + 12);
  EXPECT_EQ(UpdateTail({}, left, Sums(5), 12), 12);
  const std::vector<GradientBucket> buckets = {{2, 8}, {1, 8}, {0, 8}};
  EXPECT_EQ(UpdateTail(buckets, left, Sums(0), 3), 8 + 1) << "two thirds are hidden";
  EXPECT_EQ(UpdateTail(buckets, left, Sums(0), 30), 20 + 10) << "the sum is";
  EXPECT_EQ(UpdateTail(buckets, left, Sums(5), 30), 6 + 20 + 10) << "after the second sum";
}

// By the rule in the header, against all that there is to choose from.
TEST(GradientBuckets, TheBestAreTheBestOfPowersOfTwoAndNeverSlowerThanOne) {
  testing::Rng rng(7);
  int cut = 0;
  for (int i = 0; i < 200; ++i) {
    const auto nodes = testing::Uniform(rng, 1, 40);
    std::vector<Bytes> gradients;
    std::vector<double> backward;
    Bytes all = 0;
    for (int64_t n = 0; n < nodes; ++n) {
      gradients.push_back(Bytes(std::max<int64_t>(0, testing::Uniform(rng, -50, 100))));
      backward.push_back(static_cast<double>(testing::Uniform(rng, 0, 150)));
      all += gradients.back();
    }
    const std::vector<double> left = TimeLeftAt(backward);
    const AllReduceLines sums = Sums(static_cast<double>(testing::Uniform(rng, 0, 60)));
    const auto cost = [&](const std::vector<GradientBucket>& buckets) {
      return ExposedSums(buckets, left, sums) +
             sums.Time(0) * (static_cast<double>(buckets.size()) - 1);
    };
    const std::vector<GradientBucket> best = BestBuckets(gradients, left, sums);
    if (all == 0) {
      EXPECT_THAT(best, IsEmpty());
      continue;
    }
    Bytes summed = 0;
    for (const GradientBucket& bucket : best) summed += bucket.bytes;
    EXPECT_EQ(summed, all);
    for (int64_t n : {1, 2, 4, 8, 16, 32, 64})
      EXPECT_LE(cost(best), cost(CutGradients(gradients, Bytes((all.count() + n - 1) / n))));
    EXPECT_LE(ExposedSums(best, left, sums), sums.Time(all));
    if (best.size() > 1) ++cut;
  }
  EXPECT_GT(cut, 50);
}

TEST(GradientBuckets, LinesAreTheTimesOfAllReduces) {
  testing::Rng rng(3);
  for (int i = 0; i < 50; ++i) {
    const Cluster cluster = testing::RandomCluster(rng, 8);
    std::vector<DeviceId> devices;
    for (int32_t d = 0; d < cluster.size(); ++d) devices.emplace_back(d);
    const AllReduceLines lines = FitAllReduceLines(cluster, devices);
    for (Bytes bytes : {Bytes(0), Bytes(1000), kMiB, 300 * kMiB}) {
      const auto time = static_cast<double>(AllReduceTime(cluster, devices, bytes));
      EXPECT_NEAR(lines.Time(bytes), time, 10 + 1e-5 * time);
    }
  }
}

}  // namespace
}  // namespace stagewright
