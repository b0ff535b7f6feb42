#include "planner_service/store/disk_use.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace stagewright {
namespace {

TEST(DiskUse, CountsTheFileAndWhatBelongsToIt) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "stagewright_disk_use";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, size_t bytes) {
    std::ofstream(folder / name) << std::string(bytes, 'x');
  };
  write("state.db", 100);
  write("state.db-wal", 20);
  write("other.db", 5000);
  const DiskUse use = DiskUseOf((folder / "state.db").string());
  EXPECT_EQ(use.used_bytes, 120);
  EXPECT_GT(use.free_bytes, 0);
  std::filesystem::remove_all(folder);
}

TEST(DiskUse, WhatIsNotThereTakesNothing) {
  EXPECT_EQ(DiskUseOf(":memory:").used_bytes, 0);
  EXPECT_EQ(DiskUseOf("/nowhere/state.db").used_bytes, 0);
  EXPECT_EQ(DiskUseOf("etcd://10.0.0.1:2379/prod").free_bytes, 0);
}

}  // namespace
}  // namespace stagewright
