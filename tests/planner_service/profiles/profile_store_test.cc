#include "planner_service/profiles/profile_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner_service/store/sqlite_store.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

OperatorProfile Example() {
  OperatorProfile profile;
  profile.devices[{"NVIDIA/H200", "torch 2.13.0"}] = {
      {"aten.relu.default(float32[s,8]') -> x/y", {"2026-11-22", {{1, 9, 8, 5, 3, 2, 1}}}},
      {"aten.mm.default()", {"2026-11-21", {{1, 9, 0, 0, 0, 0, 0}, {2, 9, 0, 0, 0, 0, 0}}}}};
  profile.devices[{"cpu", "torch 2.13.0, 1 thread"}] = {
      {"aten.mm.default()", {"2026-11-22", {{4, 7, 0, 0, 0, 0, 0}}}}};
  return profile;
}

TEST(ProfileStore, KeepsEachOperatorOfEachDevice) {
  const std::unique_ptr<Store> store = OpenSqliteStore(":memory:").value().store;
  ProfileStore profiles(store.get());
  EXPECT_TRUE(profiles.Read()->empty());
  ASSERT_TRUE(profiles.Write(Example()).ok());
  EXPECT_EQ(*profiles.Read(), Example());

  OperatorProfile newer;
  newer.devices[{"cpu", "torch 2.13.0, 1 thread"}] = {
      {"aten.mm.default()", {"2026-11-23", {{8, 6, 0, 0, 0, 0, 0}}}}};
  ASSERT_TRUE(profiles.Write(newer).ok());
  OperatorProfile expected = Example();
  Merge(newer, expected);
  EXPECT_EQ(*profiles.Read(), expected);
}

TEST(ProfileStore, WhatJobsMeasuredNeverReplacesWhatWasMeasuredByItself) {
  const std::unique_ptr<Store> store = OpenSqliteStore(":memory:").value().store;
  ProfileStore profiles(store.get());
  const ProfiledDevice cpu = {"cpu", "torch"};
  OperatorProfile alone, job, later;
  alone.devices[cpu] = {{"mm", {"2026-11-01", {{4, 7, 0, 0, 0, 0, 0}}}}};
  job.devices[cpu] = {{"mm", {"2026-11-22", {{4, 90, 0, 0, 0, 0, 0}}, "jobs/7"}},
                      {"relu", {"2026-11-22", {{4, 9, 0, 0, 0, 0, 0}}, "jobs/7"}}};
  later.devices[cpu] = {
      {"relu", {"2026-11-23", {{2, 5, 0, 0, 0, 0, 0}, {4, 8, 0, 0, 0, 0, 0}}, "jobs/8"}}};
  ASSERT_TRUE(profiles.Write(job).ok());
  EXPECT_EQ(profiles.Read()->devices.at(cpu).at("mm").job, "jobs/7");  // Better than nothing.
  ASSERT_TRUE(profiles.Write(alone).ok());
  ASSERT_TRUE(profiles.Write(job).ok());
  EXPECT_EQ(profiles.Read()->devices.at(cpu).at("mm"), alone.devices.at(cpu).at("mm"));
  EXPECT_EQ(profiles.Read()->devices.at(cpu).at("relu"), job.devices.at(cpu).at("relu"));
  ASSERT_TRUE(profiles.Write(later).ok());
  EXPECT_EQ(profiles.Read()->devices.at(cpu).at("relu"), later.devices.at(cpu).at("relu"));
  // Another number of samples is something else that is known.
  later.devices[cpu]["relu"].samples = {{8, 20, 0, 0, 0, 0, 0}};
  ASSERT_TRUE(profiles.Write(later).ok());
  EXPECT_EQ(profiles.Read()->devices.at(cpu).at("relu").samples.size(), 3u);
}

TEST(ProfileStore, IsOfAnotherVersionOnceSomethingWasMeasuredByItself) {
  const std::unique_ptr<Store> store = OpenSqliteStore(":memory:").value().store;
  ProfileStore profiles(store.get());
  const int64_t first = profiles.version();
  OperatorProfile job;
  job.devices[{"cpu", "torch"}] = {{"mm", {"2026-11-22", {{4, 90, 0, 0, 0, 0, 0}}, "jobs/7"}}};
  ASSERT_TRUE(profiles.Write(job).ok());
  ASSERT_TRUE(profiles.Write(OperatorProfile()).ok());
  EXPECT_EQ(profiles.version(), first);  // No plan's basis tells of it.
  ASSERT_TRUE(profiles.Write(Example()).ok());
  const int64_t second = profiles.version();
  EXPECT_NE(second, first);
  ASSERT_TRUE(profiles.Write(Example()).ok());
  EXPECT_NE(profiles.version(), second);
}

TEST(ProfileStore, SaysWhichEntryIsDamaged) {
  const std::unique_ptr<Store> store = OpenSqliteStore(":memory:").value().store;
  ASSERT_TRUE(store->Write({{"profiles/x", "\xff"}}).ok());
  const absl::Status status = ProfileStore(store.get()).Read().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("profiles/x"));
}

}  // namespace
}  // namespace stagewright
