#include "planner_service/runs/running_median.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace stagewright {
namespace {

TEST(RunningMedianTest, IsTheEntryInTheMiddleOfTheSortedValues) {
  std::mt19937_64 random(1);
  for (const int64_t distinct : {3, 1000}) {
    RunningMedian median;
    EXPECT_EQ(median.value(), 0);
    std::vector<int64_t> values;
    for (int i = 0; i < 500; ++i) {
      const auto value = static_cast<int64_t>(random() % static_cast<uint64_t>(distinct));
      median.Add(value);
      values.insert(std::upper_bound(values.begin(), values.end(), value), value);
      ASSERT_EQ(median.value(), values[values.size() / 2]) << "after " << values.size();
    }
  }
}

}  // namespace
}  // namespace stagewright
