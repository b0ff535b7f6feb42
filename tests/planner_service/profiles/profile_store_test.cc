#include "planner_service/profiles/profile_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "planner_service/store/sqlite_store.h"
#include "tests/planner_service/jobs/recording_store.h"

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
  EXPECT_TRUE((*profiles.Read())->empty());
  ASSERT_TRUE(profiles.Write(Example()).ok());
  EXPECT_EQ(**profiles.Read(), Example());

  OperatorProfile newer;
  newer.devices[{"cpu", "torch 2.13.0, 1 thread"}] = {
      {"aten.mm.default()", {"2026-11-23", {{8, 6, 0, 0, 0, 0, 0}}}}};
  ASSERT_TRUE(profiles.Write(newer).ok());
  OperatorProfile expected = Example();
  Merge(newer, expected);
  EXPECT_EQ(**profiles.Read(), expected);
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
  EXPECT_EQ((*profiles.Read())->devices.at(cpu).at("mm").job, "jobs/7");  // Better than nothing.
  ASSERT_TRUE(profiles.Write(alone).ok());
  ASSERT_TRUE(profiles.Write(job).ok());
  EXPECT_EQ((*profiles.Read())->devices.at(cpu).at("mm"), alone.devices.at(cpu).at("mm"));
  EXPECT_EQ((*profiles.Read())->devices.at(cpu).at("relu"), job.devices.at(cpu).at("relu"));
  ASSERT_TRUE(profiles.Write(later).ok());
  EXPECT_EQ((*profiles.Read())->devices.at(cpu).at("relu"), later.devices.at(cpu).at("relu"));
  // Another number of samples is something else that is known.
  later.devices[cpu]["relu"].samples = {{8, 20, 0, 0, 0, 0, 0}};
  ASSERT_TRUE(profiles.Write(later).ok());
  EXPECT_EQ((*profiles.Read())->devices.at(cpu).at("relu").samples.size(), 3u);
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

// Fails on demand, or does not say that it has written.
class Doubtful : public testing::RecordingStore {
 public:
  absl::Status WriteIf(const std::vector<Condition>& conditions,
                       const std::vector<Mutation>& batch) override {
    if (!failure.ok() && !absl::IsDeadlineExceeded(failure)) return failure;
    RETURN_IF_ERROR(RecordingStore::WriteIf(conditions, batch));
    return failure;
  }
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Scan(
      const std::string& prefix) const override {
    if (!failure.ok()) return failure;
    return RecordingStore::Scan(prefix);
  }
  absl::StatusOr<std::string> Read(const std::string& key) const override {
    ++reads;
    if (!failure.ok()) return failure;
    return RecordingStore::Read(key);
  }

  absl::Status failure;
  mutable int reads = 0;
};

TEST(ProfileStore, AsksTheStoreOnce) {
  Doubtful store;
  ASSERT_TRUE(ProfileStore(&store).Write(Example()).ok());
  ProfileStore profiles(&store);
  store.failure = absl::UnavailableError("away");
  EXPECT_EQ(profiles.Read().status(), store.failure);
  store.failure = absl::OkStatus();
  const auto first = *profiles.Read();
  EXPECT_EQ(*first, Example());
  const int scans = store.scans();
  OperatorProfile newer;
  newer.devices[{"tpu", "torch"}] = {{"mm", {"2026-11-23", {{8, 6, 0, 0, 0, 0, 0}}}}};
  ASSERT_TRUE(profiles.Write(newer).ok());
  EXPECT_EQ(*first, Example());  // Whoever reads it keeps it.
  const auto second = *profiles.Read();
  EXPECT_EQ(second->devices.size(), 3u);
  EXPECT_EQ(*profiles.Read(), second);
  EXPECT_EQ(store.scans(), scans);
  // What it shows is what the store has.
  EXPECT_EQ(**ProfileStore(&store).Read(), *second);
}

TEST(ProfileStore, ShowsWhatTheStoreHasAfterAWriteThatFailed) {
  Doubtful store;
  ProfileStore profiles(&store);
  ASSERT_TRUE((*profiles.Read())->empty());
  store.failure = absl::UnavailableError("away");
  EXPECT_EQ(profiles.Write(Example()), store.failure);
  EXPECT_TRUE((*profiles.Read())->empty());  // Nor is the store asked, which is away.
  store.failure = absl::DeadlineExceededError("no answer");
  EXPECT_EQ(profiles.Write(Example()), store.failure);
  EXPECT_EQ(profiles.Read().status(), store.failure);
  store.failure = absl::OkStatus();
  EXPECT_EQ(**profiles.Read(), Example());
}

TEST(ProfileStore, KnowsWhatItLastReadWhateverTheStoreDoes) {
  Doubtful store;
  ProfileStore profiles(&store);
  EXPECT_TRUE(absl::IsUnavailable(profiles.Known().status()));
  ASSERT_TRUE(profiles.Write(Example()).ok());
  EXPECT_EQ(**profiles.Known(), Example());
  EXPECT_TRUE(profiles.current());
  OperatorProfile newer;
  newer.devices[{"tpu", "torch"}] = {{"mm", {"2026-11-23", {{8, 6, 0, 0, 0, 0, 0}}}}};
  store.failure = absl::DeadlineExceededError("no answer");
  EXPECT_EQ(profiles.Write(newer), store.failure);
  EXPECT_FALSE(profiles.current());
  EXPECT_EQ(**profiles.Known(), Example());
  store.failure = absl::OkStatus();
  ASSERT_TRUE(profiles.Read().ok());
  EXPECT_EQ(*profiles.Known(), *profiles.Read());
  EXPECT_EQ((*profiles.Known())->devices.size(), 3u);
}

TEST(ProfileStore, AsksAStoreThatDoesNotAnswerNotOnceForEachOperator) {
  Doubtful store;
  ProfileStore profiles(&store);
  OperatorProfile job;
  for (const char* signature : {"mm", "relu", "add"})
    job.devices[{"cpu", "torch"}][signature] = {"2026-11-22", {{4, 9, 0, 0, 0, 0, 0}}, "jobs/7"};
  store.failure = absl::UnavailableError("away");
  EXPECT_EQ(profiles.Write(job), store.failure);
  EXPECT_EQ(store.reads, 0);
}

TEST(ProfileStore, IsWholeAgainOnceADamagedEntryIsWritten) {
  testing::RecordingStore store;
  ProfileStore profiles(&store);
  const ProfiledDevice cpu = {"cpu", "torch"};
  OperatorProfile two, one;
  for (const char* signature : {"mm", "relu"})
    two.devices[cpu][signature] = {"2026-11-22", {{4, 90, 0, 0, 0, 0, 0}}, "jobs/7"};
  ASSERT_TRUE(profiles.Write(two).ok());
  auto entries = store.Entries();
  ASSERT_EQ(entries.size(), 2u);
  std::string& mm = entries.begin()->second;
  ASSERT_THAT(mm, HasSubstr("mm"));
  mm = "\xff";
  store.Replace(entries);
  ProfileStore later(&store);
  const int scans = store.scans();
  EXPECT_TRUE(absl::IsDataLoss(later.Read().status()));
  EXPECT_TRUE(absl::IsDataLoss(later.Read().status()));
  EXPECT_EQ(store.scans(), scans + 1);
  one = two;
  for (const char* signature : {"mm", "relu"}) one.devices[cpu][signature].samples[0].samples = 8;
  ASSERT_TRUE(later.Write(one).ok());
  const auto known = *later.Read();
  EXPECT_EQ(known->devices.at(cpu).at("mm").samples.size(), 1u);
  EXPECT_EQ(known->devices.at(cpu).at("relu").samples.size(), 2u);
}

TEST(ProfileStore, IsReadWhileItIsWritten) {
  const std::unique_ptr<Store> store = OpenSqliteStore(":memory:").value().store;
  ProfileStore profiles(store.get());
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 3; ++writer) {
    writers.emplace_back([&profiles, writer] {
      for (int64_t i = 1; i <= 20; ++i) {
        OperatorProfile profile;
        profile.devices[{"cpu", "torch"}][std::to_string(writer)] = {
            "2026-11-22", {{i, 9, 0, 0, 0, 0, 0}}, "jobs/7"};
        ASSERT_TRUE(profiles.Write(profile).ok());
        const auto known = *profiles.Read();
        EXPECT_EQ(known->devices.at({"cpu", "torch"}).at(std::to_string(writer)).samples.size(),
                  static_cast<size_t>(i));
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(**profiles.Read(), **ProfileStore(store.get()).Read());
}

}  // namespace
}  // namespace stagewright
