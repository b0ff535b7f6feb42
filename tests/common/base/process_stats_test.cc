#include "common/base/process_stats.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <vector>

namespace stagewright {
namespace {

TEST(ProcessStats, AreThoseOfThisProcess) {
  const ProcessStats before = ReadProcessStats();
  EXPECT_GT(before.resident_bytes, 1 << 20);
  EXPECT_GE(before.virtual_bytes, before.resident_bytes);
  EXPECT_GE(before.threads, 1);
  EXPECT_GT(before.most_files, before.open_files);
  EXPECT_LE(before.start_time_seconds, static_cast<double>(time(nullptr)) + 2);
  EXPECT_GT(before.start_time_seconds, static_cast<double>(time(nullptr)) - 3600);

  const int file = open("/dev/null", O_RDONLY);
  const std::vector<char> used(64 << 20, 1);
  volatile double sum = 0;
  for (int i = 0; i < 100'000'000; ++i) sum = sum + i;
  const ProcessStats after = ReadProcessStats();
  close(file);
  EXPECT_EQ(after.open_files, before.open_files + 1);
  EXPECT_GT(after.cpu_seconds, before.cpu_seconds);
  EXPECT_GT(after.resident_bytes, before.resident_bytes + (32 << 20)) << used.size();
}

}  // namespace
}  // namespace stagewright
