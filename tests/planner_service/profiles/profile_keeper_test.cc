#include "planner_service/profiles/profile_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/log/log.h"
#include "tests/planner_service/jobs/recording_store.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);

OperatorProfile Of(const std::string& job, const std::string& signature) {
  OperatorProfile profile;
  profile.devices[{"cpu", "torch"}][signature] = {"2026-11-22", {{4, 9, 0, 0, 0, 0, 0}}, job};
  return profile;
}

// Says nothing of what it has until it may.
class HungStore : public testing::RecordingStore {
 public:
  absl::Status WriteIf(const std::vector<Condition>& conditions,
                       const std::vector<Mutation>& batch) override {
    ++writes;
    return RecordingStore::WriteIf(conditions, batch);
  }
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Scan(
      const std::string& prefix) const override {
    if (!asked.HasBeenNotified()) asked.Notify();
    may.WaitForNotificationWithTimeout(kPatience);
    return RecordingStore::Scan(prefix);
  }

  mutable absl::Notification asked, may;
  std::atomic<int> writes = 0;
};

// What is logged meanwhile, a line each.
class Lines {
 public:
  std::vector<std::string> Take() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(lines_, {});
  }
  std::function<void(const std::string&)> on_line;

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
  LogTap tap_{[this](const LogLine& line) {
    const std::string text = FormatLine(line, LogFormat::kText);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      lines_.push_back(text);
    }
    if (on_line) on_line(text);
  }};
};

TEST(ProfileKeeperTest, WritesInOrderAndAllBeforeItGoes) {
  testing::RecordingStore store;
  ProfileStore profiles(&store);
  {
    ProfileKeeper keeper(&profiles, kPatience);
    for (const char* job : {"jobs/1", "jobs/2", "jobs/3"}) keeper.Keep(job, Of(job, "mm"));
  }
  EXPECT_EQ((*profiles.Read())->devices.begin()->second.at("mm").job, "jobs/3");
}

TEST(ProfileKeeperTest, DropsWhatAStoreThatHangsLeavesWaiting) {
  HungStore store;
  ProfileStore profiles(&store);
  Lines lines;
  // The call that has begun goes on until the store lets it end.
  lines.on_line = [&store](const std::string& line) {
    if (absl::StrContains(line, "before the planner ended")) store.may.Notify();
  };
  absl::Time begun;
  {
    ProfileKeeper keeper(&profiles, absl::Milliseconds(50));
    keeper.Keep("jobs/1", Of("jobs/1", "mm"));
    ASSERT_TRUE(store.asked.WaitForNotificationWithTimeout(kPatience));
    for (const char* job : {"jobs/2", "jobs/2", "jobs/3"}) keeper.Keep(job, Of(job, "mm"));
    begun = absl::Now();
  }
  EXPECT_LT(absl::Now() - begun, kPatience);
  EXPECT_EQ(store.writes, 1);
  EXPECT_THAT(
      lines.Take(),
      ElementsAre(::testing::ContainsRegex("lost=3 jobs=jobs/2,jobs/3 waited_seconds=0.05")));
}

TEST(ProfileKeeperTest, TellsWhatIsMoreThanMayWait) {
  HungStore store;
  ProfileStore profiles(&store);
  Lines lines;
  ProfileKeeper keeper(&profiles, kPatience);
  for (size_t i = 0; i < ProfileKeeper::kMostQueued + 2; ++i)
    keeper.Keep("jobs/1", Of("jobs/1", "mm"));
  const std::vector<std::string> told = lines.Take();
  ASSERT_FALSE(told.empty());
  EXPECT_THAT(told.front(), HasSubstr("what a job measured is not kept"));
  EXPECT_THAT(told.front(), HasSubstr("job=jobs/1"));
  store.may.Notify();
}

TEST(ProfileKeeperTest, KnowsWithoutAWaitAndAsksTheStoreSoon) {
  HungStore store;
  ProfileStore profiles(&store);
  ProfileKeeper keeper(&profiles, kPatience);
  EXPECT_TRUE(absl::IsUnavailable(keeper.Known().status())) << "the store hangs";
  store.may.Notify();
  for (const absl::Time until = absl::Now() + kPatience;
       !keeper.Known().ok() && absl::Now() < until;)
    absl::SleepFor(absl::Milliseconds(1));
  ASSERT_TRUE(keeper.Known().ok());
  EXPECT_TRUE((*keeper.Known())->empty());
}

}  // namespace
}  // namespace stagewright
