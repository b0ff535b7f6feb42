#include "planner_service/planners/graphpipe/recurrence/partition_front.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

// One config, so that a row of needs is the need itself.
class PartitionFrontTest : public ::testing::Test {
 protected:
  PartitionFrontTest() : rows_({{1, 1}}, 1024) { rows_.Reset(1024); }

  bool Insert(int32_t devices, int64_t need, double traffic = 0, Bytes peak = 0,
              int32_t stages = 1) {
    PartitionPoint point;
    point.devices = devices;
    point.stages = stages;
    point.traffic = traffic;
    point.peak = peak;
    return front_.Insert(point, {need}, rows_, options_);
  }
  std::vector<std::pair<int32_t, int64_t>> Points() const {
    std::vector<std::pair<int32_t, int64_t>> points;
    for (size_t i = 0; i < front_.points().size(); ++i)
      points.emplace_back(front_.points()[i].devices, *front_.Needs(i, 1));
    return points;
  }

  NeedRows rows_;
  PartitionOptions options_;
  PartitionFront front_;
};

using Pairs = std::vector<std::pair<int32_t, int64_t>>;

TEST_F(PartitionFrontTest, KeepsWhatNothingDominates) {
  EXPECT_TRUE(Insert(4, 2));
  EXPECT_TRUE(Insert(2, 4));
  EXPECT_TRUE(Insert(3, 3));
  EXPECT_TRUE(Insert(3, 4));  // No better than (3, 3) in anything.
  EXPECT_EQ(Points(), (Pairs{{4, 2}, {2, 4}, {3, 3}}));
  EXPECT_EQ(front_.fewest_devices(), 2);
  EXPECT_TRUE(Insert(2, 2));
  EXPECT_EQ(Points(), (Pairs{{2, 2}}));
}

TEST_F(PartitionFrontTest, EqualsGoToLessTrafficThenLessMemory) {
  Insert(2, 2, /*traffic=*/5, /*peak=*/5);
  Insert(2, 2, /*traffic=*/5, /*peak=*/6);
  EXPECT_EQ(front_.points()[0].peak, 5);
  Insert(2, 2, /*traffic=*/4, /*peak=*/9);
  EXPECT_EQ(front_.points()[0].peak, 9);
  EXPECT_EQ(front_.points().size(), 1u);
}

TEST_F(PartitionFrontTest, StagesCountWhereTheyAreLimited) {
  options_.max_stages = 3;
  Insert(2, 2, 0, 0, /*stages=*/2);
  Insert(3, 3, 0, 0, /*stages=*/1);
  EXPECT_EQ(front_.points().size(), 2u);
  options_.exact_stages = true;
  Insert(1, 1, 0, 0, /*stages=*/3);
  EXPECT_EQ(front_.points().size(), 3u);
}

TEST_F(PartitionFrontTest, AFullFrontLosesItsLeastPromisingPoint) {
  const auto most = static_cast<int32_t>(PartitionFront::kMaxPoints);
  for (int32_t i = 1; i <= most; ++i) EXPECT_TRUE(Insert(2 * i, 1000 - i));
  EXPECT_FALSE(Insert(2 * most + 2, 1));  // It would have most devices itself.
  EXPECT_EQ(Points().back(), std::make_pair(2 * most, int64_t{1000 - most}));
  EXPECT_FALSE(Insert(1, 1001));
  EXPECT_EQ(Points().back(), std::make_pair(1, int64_t{1001}));
  EXPECT_EQ(front_.points().size(), static_cast<size_t>(most));
}

TEST_F(PartitionFrontTest, BehindTheLastOperatorThereIsNothing) {
  front_.BeginAtTheEnd();
  EXPECT_EQ(front_.fewest_devices(), 0);
  EXPECT_EQ(front_.points().size(), 1u);
  front_.Clear();
  EXPECT_TRUE(front_.empty());
}

}  // namespace
}  // namespace stagewright
