#include "planner_service/state/state_tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "planner_service/jobs/job_proto.h"
#include "planner_service/jobs/job_store.h"
#include "planner_service/store/set_aside.h"
#include "planner_service/store/sqlite_store.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/store/temporary_folder.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StateToolsTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name = "state.db") const {
    return (folder_.path() / name).string();
  }
  static std::unique_ptr<Store> Open(const std::string& path) {
    return OpenSqliteStore(path).value().store;
  }
  // With jobs of these numbers.
  void Make(const std::string& path, const std::vector<int64_t>& numbers) const {
    const auto store = Open(path);
    for (const int64_t number : numbers) {
      Job job;
      job.number = number;
      job.message = absl::StrCat("the message of ", number, ", ", std::string(2000, 'x'));
      SetSpec(testing::SmallSpec(), job);
      ASSERT_EQ(JobStore(store.get()).Write(job, nullptr), absl::OkStatus());
    }
  }
  // In the file, once its log is part of it.
  static void Damage(const std::string& path, const std::string& old, const std::string& with) {
    std::stringstream bytes;
    bytes << std::ifstream(path, std::ios::binary).rdbuf();
    std::string text = bytes.str();
    ASSERT_NE(text.find(old), std::string::npos);
    text.replace(text.find(old), with.size(), with);
    std::ofstream(path, std::ios::binary) << text;
  }
  // Names in the folder that begin so.
  std::vector<std::string> Beside(const std::string& start) const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      const std::string name = entry.path().filename();
      if (name.rfind(start, 0) == 0) found.push_back(name);
    }
    return found;
  }

  const testing::TemporaryFolder folder_;
};

TEST_F(StateToolsTest, AGoodStateIsGood) {
  Make(Path(), {3, 12});
  const StateReport report = CheckState(Path()).value();
  EXPECT_TRUE(report.good());
  EXPECT_EQ(report.jobs, 2);
  EXPECT_EQ(report.newest_job, "jobs/12");
  EXPECT_THAT(RepairState(Path(), /*drop=*/true).value(),
              ElementsAre(HasSubstr("needs no repair")));
}

TEST_F(StateToolsTest, WhatIsNoStateIsRefused) {
  EXPECT_EQ(CheckState(Path()).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(std::filesystem::exists(Path())) << "looking makes nothing";
  std::ofstream(Path()).close();
  EXPECT_EQ(CheckState(Path()).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(RepairState(Path(), false).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(StateToolsTest, DamageIsNamedByJobAndRepaired) {
  Make(Path(), {1, 2, 3});
  Damage(Path(), "the message of 1,", "The Message of 1,");
  {
    const auto store = Open(Path());  // As a planner that starts finds it.
    EXPECT_EQ(KeysSetAside(*store)->size(), 1u);
    ASSERT_EQ(store->Write({{"jobs/000000000003", "\xff"}}), absl::OkStatus());
  }
  const StateReport report = CheckState(Path()).value();
  EXPECT_FALSE(report.good());
  EXPECT_THAT(report.damaged, ElementsAre(HasSubstr("jobs/3 (entry jobs/000000000003)")));
  EXPECT_THAT(report.set_aside, ElementsAre(HasSubstr("jobs/")));
  EXPECT_THAT(RepairState(Path(), /*drop=*/false).value(),
              ElementsAre(HasSubstr("set aside"), HasSubstr("set aside")));
  EXPECT_THAT(CheckState(Path())->damaged, IsEmpty());
  EXPECT_EQ(CheckState(Path())->set_aside.size(), 2u);
  EXPECT_EQ(RepairState(Path(), /*drop=*/true)->size(), 2u);
  EXPECT_TRUE(CheckState(Path())->good());
  EXPECT_EQ(CheckState(Path())->jobs, 1);
}

TEST_F(StateToolsTest, AChangedEntryIsFoundWhileNoPlannerHasSeenIt) {
  Make(Path(), {7});
  Damage(Path(), "the message", "The Message");
  EXPECT_THAT(CheckState(Path())->damaged,
              ElementsAre("jobs/7 (entry jobs/000000000007): not as it was written"));
}

TEST_F(StateToolsTest, ADamagedFileIsMadeAnewOfWhatCanBeRead) {
  std::vector<int64_t> numbers;
  for (int64_t i = 1; i <= 60; ++i) numbers.push_back(i);
  Make(Path(), numbers);
  const size_t page = std::filesystem::file_size(Path()) / 4096 / 2 * 4096;
  std::fstream file(Path(), std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(page));
  file << std::string(4096, '\x55');
  file.close();
  ASSERT_THAT(CheckState(Path())->pages, Not(IsEmpty()));
  ASSERT_FALSE(OpenSqliteStore(Path()).ok());
  EXPECT_THAT(RepairState(Path(), false)->at(0), HasSubstr("could be read and are kept"));
  EXPECT_EQ(Beside("state.db.damaged-").size(), 1u);
  EXPECT_THAT(CheckState(Path())->pages, IsEmpty());
  EXPECT_GT(CheckState(Path())->jobs, 40);
}

TEST_F(StateToolsTest, ABackupIsMadeWhileAPlannerWritesAndRestored) {
  Make(Path(), {1, 2});
  {
    const auto planner = Open(Path());
    ASSERT_EQ(BackUpState(Path(), Path("copy.db")), absl::OkStatus());
    EXPECT_FALSE(BackUpState(Path(), Path("copy.db")).ok()) << "copies are not replaced";
    EXPECT_EQ(RestoreState(Path("copy.db"), Path(), true).status().code(),
              absl::StatusCode::kFailedPrecondition)
        << "nor is a state that is in use";
  }
  EXPECT_THAT(RestoreState(Path("copy.db"), Path(), false).value(),
              ElementsAre(HasSubstr("already")));
  Make(Path(), {3});
  const absl::Status refused = RestoreState(Path("copy.db"), Path(), false).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("3 jobs up to jobs/3"));
  EXPECT_EQ(CheckState(Path())->jobs, 3);
  EXPECT_EQ(RestoreState(Path("copy.db"), Path(), true)->size(), 2u);
  EXPECT_EQ(CheckState(Path())->newest_job, "jobs/2");
  EXPECT_EQ(Beside("state.db.replaced-").size(), 1u);
  EXPECT_THAT(RestoreState(Path("copy.db"), Path("other.db"), false).value(),
              ElementsAre(HasSubstr("2 jobs up to jobs/2")));
}

TEST_F(StateToolsTest, ADamagedBackupIsNotRestored) {
  Make(Path(), {1});
  ASSERT_EQ(BackUpState(Path(), Path("copy.db")), absl::OkStatus());
  Damage(Path("copy.db"), "the message", "The Message");
  const absl::Status refused = RestoreState(Path("copy.db"), Path("new.db"), true).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("copy.db is damaged itself"));
  EXPECT_FALSE(std::filesystem::exists(Path("new.db")));
}

}  // namespace
}  // namespace stagewright
