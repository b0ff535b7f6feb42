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
  const auto store = OpenSqliteStore(":memory:");
  ASSERT_TRUE(store.ok()) << store.status();
  ProfileStore profiles(store->get());
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

TEST(ProfileStore, SaysWhichEntryIsDamaged) {
  const auto store = OpenSqliteStore(":memory:");
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE((*store)->Write({{"profiles/x", "\xff"}}).ok());
  const absl::Status status = ProfileStore(store->get()).Read().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("profiles/x"));
}

}  // namespace
}  // namespace stagewright
