#include "common/base/sample_range.h"

#include <gtest/gtest.h>

#include <sstream>

namespace stagewright {
namespace {

TEST(SampleRange, IntersectionsOfAllSmallRanges) {
  for (int64_t a = 0; a < 5; ++a) {
    for (int64_t b = a; b < 5; ++b) {
      for (int64_t c = 0; c < 5; ++c) {
        for (int64_t d = c; d < 5; ++d) {
          const SampleRange both = Intersect({a, b}, {c, d});
          for (int64_t x = 0; x < 5; ++x) {
            const bool inside = a <= x && x < b && c <= x && x < d;
            EXPECT_EQ(both.begin <= x && x < both.end, inside);
          }
          EXPECT_TRUE(!both.empty() || both == SampleRange{});
        }
      }
    }
  }
}

TEST(SampleRange, ContainsAndPrints) {
  const SampleRange range{8, 12};
  EXPECT_EQ(range.size(), 4);
  EXPECT_TRUE(range.Contains({8, 12}));
  EXPECT_TRUE(range.Contains({9, 10}));
  EXPECT_FALSE(range.Contains({7, 9}));
  EXPECT_FALSE(range.Contains({11, 13}));
  std::ostringstream text;
  text << range;
  EXPECT_EQ(text.str(), "[8,12)");
}

}  // namespace
}  // namespace stagewright
