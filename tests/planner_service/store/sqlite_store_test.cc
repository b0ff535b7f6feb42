// What every Store does, and what is particular to the SQLite file.
#include "planner_service/store/sqlite_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class SqliteStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        std::filesystem::temp_directory_path() / ("stagewright_store_" + std::to_string(getpid()));
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Path() const { return (directory_ / "state.db").string(); }
  std::unique_ptr<Store> Open() const {
    auto store = OpenSqliteStore(Path());
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  std::filesystem::path directory_;
};

TEST_F(SqliteStoreTest, ReadsWhatWasWritten) {
  auto store = Open();
  ASSERT_TRUE(
      store->Write({{"jobs/2", "two"}, {"jobs/1", std::string("a\0b", 3)}, {"other", ""}}).ok());
  EXPECT_EQ(*store->Read("jobs/1"), std::string("a\0b", 3));
  EXPECT_EQ(*store->Read("other"), "");
  EXPECT_EQ(store->Read("jobs/3").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(*store->Scan("jobs/"),
              ElementsAre(Pair("jobs/1", std::string("a\0b", 3)), Pair("jobs/2", "two")));
}

TEST_F(SqliteStoreTest, PrefixIsNotAPattern) {
  auto store = Open();
  ASSERT_TRUE(store->Write({{"a%b", "1"}, {"aXb", "2"}, {"a_b", "3"}}).ok());
  EXPECT_THAT(*store->Scan("a%"), ElementsAre(Pair("a%b", "1")));
}

TEST_F(SqliteStoreTest, BatchesReplaceAndDelete) {
  auto store = Open();
  ASSERT_TRUE(store->Write({{"k", "1"}, {"gone", "x"}}).ok());
  ASSERT_TRUE(store->Write({{"k", "2"}, {"gone", std::nullopt}, {"never", std::nullopt}}).ok());
  EXPECT_THAT(*store->Scan(""), ElementsAre(Pair("k", "2")));
}

TEST_F(SqliteStoreTest, AgreesWithAMap) {
  auto store = Open();
  std::map<std::string, std::string> model;
  std::mt19937 random(7);
  for (int round = 0; round < 100; ++round) {
    std::vector<Mutation> batch;
    for (int i = 0; i < 5; ++i) {
      const std::string key = "k" + std::to_string(random() % 20);
      if (random() % 3 == 0) {
        batch.push_back({key, std::nullopt});
        model.erase(key);
      } else {
        batch.push_back({key, std::to_string(random())});
        model[key] = *batch.back().value;
      }
    }
    ASSERT_TRUE(store->Write(batch).ok());
  }
  EXPECT_THAT(*store->Scan(""), ::testing::ElementsAreArray(model.begin(), model.end()));
}

TEST_F(SqliteStoreTest, SurvivesAKilledProcess) {
  const pid_t child = fork();
  if (child == 0) {
    auto store = OpenSqliteStore(Path());
    if (!store.ok() || !(*store)->Write({{"jobs/1", "kept"}}).ok()) _exit(1);
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(*Open()->Read("jobs/1"), "kept");
}

TEST_F(SqliteStoreTest, RefusesASecondOwner) {
  auto first = Open();
  ASSERT_TRUE(first->Write({{"k", "v"}}).ok());
  auto second = OpenSqliteStore(Path());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(Path()));
}

TEST_F(SqliteStoreTest, RefusesAForeignFile) {
  std::ofstream(Path())
      << "this is no database, however long one reads it; at least one page of text is needed here";
  auto store = OpenSqliteStore(Path());
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("not a Stagewright store"));
}

TEST_F(SqliteStoreTest, NamesAnUnusablePath) {
  auto store = OpenSqliteStore((directory_ / "absent" / "state.db").string());
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("absent"));
}

}  // namespace
}  // namespace stagewright
