#include "common/base/units.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(Units, DurationsHaveThreeDigits) {
  EXPECT_EQ(FormatDuration(0), "0 ns");
  EXPECT_EQ(FormatDuration(812), "812 ns");
  EXPECT_EQ(FormatDuration(812'000), "812 us");
  EXPECT_EQ(FormatDuration(1'250'000), "1.25 ms");
  EXPECT_EQ(FormatDuration(12'340'000), "12.3 ms");
  EXPECT_EQ(FormatDuration(2 * kSecond), "2 s");
  EXPECT_EQ(FormatDuration(-1'500), "-1.5 us");
}

TEST(Units, BytesAreBinary) {
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(3 * kGiB / 2), "1.5 GiB");
  EXPECT_EQ(FormatBytes(100 * kMiB), "100 MiB");
  EXPECT_EQ(FormatBytes(kKiB + 256), "1.25 KiB");
  EXPECT_EQ(FormatBytes(-kMiB), "-1 MiB");
}

TEST(Units, Seconds) { EXPECT_DOUBLE_EQ(ToSeconds(1'500'000'000), 1.5); }

}  // namespace
}  // namespace stagewright
