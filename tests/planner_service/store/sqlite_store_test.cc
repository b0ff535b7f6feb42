// What is particular to a store in a SQLite file: whose it is, and what becomes of damage.
#include "planner_service/store/sqlite_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "planner_service/store/set_aside.h"
#include "planner_service/store/sqlite_file.h"
#include "planner_service/store/sqlite_salvage.h"
#include "tests/planner_service/store/temporary_folder.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class SqliteStoreTest : public ::testing::Test {
 protected:
  std::string Path() const { return (folder_.path() / "state.db").string(); }
  std::unique_ptr<Store> Open() const {
    auto opened = OpenSqliteStore(Path());
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? std::move(opened->store) : nullptr;
  }
  void Write(const std::vector<Mutation>& batch) const {
    ASSERT_EQ(Open()->Write(batch), absl::OkStatus());
  }
  absl::Status Refusal() const {
    const absl::Status status = OpenSqliteStore(Path()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(Path()));
    return status;
  }
  // Changes the bytes of the file, once the log is part of it.
  void Edit(const std::function<void(std::string&)>& edit) const {
    ASSERT_EQ(Database().Execute("PRAGMA wal_checkpoint(TRUNCATE)"), absl::OkStatus());
    std::stringstream bytes;
    bytes << std::ifstream(Path(), std::ios::binary).rdbuf();
    std::string text = bytes.str();
    edit(text);
    std::ofstream(Path(), std::ios::binary) << text;
  }
  void Replace(const std::string& old, const std::string& with) const {
    Edit([&](std::string& text) {
      ASSERT_NE(text.find(old), std::string::npos);
      text.replace(text.find(old), old.size(), with);
    });
  }
  SqliteDatabase Database() const { return SqliteDatabase::Open(Path()).value(); }

  const testing::TemporaryFolder folder_;
};

TEST_F(SqliteStoreTest, SurvivesAKilledProcess) {
  const pid_t child = fork();
  if (child == 0) {
    auto opened = OpenSqliteStore(Path());
    if (!opened.ok() || !opened->store->Write({{"jobs/1", "kept"}}).ok()) _exit(1);
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(Open()->Read("jobs/1").value(), "kept");
}

TEST_F(SqliteStoreTest, SaysThatAStateIsNew) {
  EXPECT_THAT(OpenSqliteStore(Path())->notes, ElementsAre(HasSubstr("new state in " + Path())));
  EXPECT_THAT(OpenSqliteStore(Path())->notes, IsEmpty());
}

TEST_F(SqliteStoreTest, RefusesASecondOwner) {
  auto first = Open();
  ASSERT_TRUE(first->Write({{"k", "v"}}).ok());
  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("another planner"));
  first.reset();
  EXPECT_EQ(Open()->Read("k").value(), "v");
}

TEST_F(SqliteStoreTest, RefusesASecondOwnerByAnotherName) {
  const auto first = Open();
  ASSERT_EQ(first->Write({{"jobs/1", "a"}}), absl::OkStatus());
  const std::filesystem::path link = folder_.path() / "other.db";
  std::filesystem::create_symlink(Path(), link);
  const absl::Status second = OpenSqliteStore(link.string()).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.message()), HasSubstr("it is in use"));
}

// Whether the first planner runs or left a log beside its own name only.
TEST_F(SqliteStoreTest, RefusesAFileOfTwoNames) {
  auto first = Open();
  ASSERT_EQ(first->Write({{"jobs/1", "a"}}), absl::OkStatus());
  EXPECT_EQ(std::filesystem::hard_link_count(Path()), 1u);
  const std::filesystem::path other = folder_.path() / "other.db";
  std::filesystem::create_hard_link(Path(), other);
  for (const bool runs : {true, false}) {
    if (!runs) first.reset();
    const absl::Status second = OpenSqliteStore(other.string()).status();
    EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(second.message()), HasSubstr("2 names (hard links)"));
  }
  std::filesystem::remove(other);
  EXPECT_EQ(Open()->Read("jobs/1").value(), "a");
}

TEST_F(SqliteStoreTest, WritesNothingToFilesThatWereMovedAway) {
  for (const char* suffix : {"", "-wal"}) {
    const auto store = Open();
    ASSERT_EQ(store->Write({{"jobs/1", "a"}}), absl::OkStatus());
    const std::string file = Path() + suffix;
    std::filesystem::rename(file, file + ".moved");
    const absl::Status lost = store->Write({{"jobs/2", "b"}});
    EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(lost.message()), HasSubstr(file + ": it was moved"));
    std::ofstream(file) << "something else";
    EXPECT_FALSE(store->Write({{"jobs/2", "b"}}).ok());
    EXPECT_EQ(store->Read("jobs/1").value(), "a");
    std::filesystem::rename(file + ".moved", file);
    EXPECT_EQ(store->Write({{"jobs/2", "b"}}), absl::OkStatus());
    EXPECT_EQ(store->Read("jobs/2").value(), "b");
  }
}

TEST_F(SqliteStoreTest, RefusesAForeignFile) {
  std::ofstream(Path())
      << "this is no database, however long one reads it; at least one page of text is needed here";
  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("not a Stagewright store"));
}

TEST_F(SqliteStoreTest, RefusesAnotherProgramsDatabase) {
  ASSERT_EQ(SqliteDatabase::Create(Path())->Execute("CREATE TABLE notes (text)"), absl::OkStatus());
  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("not a Stagewright store"));
}

// A folder has several names, too, its own and "..".
TEST_F(SqliteStoreTest, RefusesAFolderAsOne) {
  std::filesystem::create_directory(Path());
  EXPECT_EQ(std::string(Refusal().message()), "store " + Path() + ": it is a folder, and no file");
}

TEST_F(SqliteStoreTest, RefusesAnEmptyFile) {
  std::ofstream(Path()).close();
  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("the file is empty"));
  EXPECT_EQ(std::filesystem::file_size(Path()), 0u) << "and leaves it as it is";
}

TEST_F(SqliteStoreTest, RefusesAFileThatWasEmptied) {
  Write({{"jobs/1", "one"}});
  std::filesystem::resize_file(Path(), 0);
  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("contents are lost"));
}

TEST_F(SqliteStoreTest, RefusesToBeginAnewBesideALog) {
  std::ofstream(Path() + "-wal") << "entries";
  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("-wal"));
  EXPECT_FALSE(std::filesystem::exists(Path()));
}

TEST_F(SqliteStoreTest, RefusesANewerVersion) {
  Write({{"jobs/1", "one"}});
  ASSERT_EQ(Database().Execute("PRAGMA user_version=99"), absl::OkStatus());
  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("newer Stagewright (schema 99)"));
}

TEST_F(SqliteStoreTest, NamesAnUnusablePath) {
  const auto opened = OpenSqliteStore((folder_.path() / "absent" / "state.db").string());
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("absent"));
}

TEST_F(SqliteStoreTest, TakesOverAStoreOfTheSchemaBefore) {
  ASSERT_EQ(SqliteDatabase::Create(Path())->Execute(
                "CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID; "
                "INSERT INTO entries VALUES ('jobs/1', x'00ff'), ('jobs/2', x''); "
                "PRAGMA user_version=1"),
            absl::OkStatus());
  for (int opening = 0; opening < 2; ++opening) {
    EXPECT_THAT(Open()->Scan("").value(),
                ElementsAre(Pair("jobs/1", std::string("\0\xff", 2)), Pair("jobs/2", "")));
  }
}

TEST_F(SqliteStoreTest, SetsADamagedEntryAside) {
  Write({{"jobs/1", "the first job"}, {"jobs/2", "the second job"}, {"jobs/3", "the third job"}});
  Replace("the second job", "the sEcond job");
  auto opened = OpenSqliteStore(Path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_THAT(opened->notes, ElementsAre(HasSubstr("entry jobs/2 is damaged and was set aside")));
  EXPECT_THAT(opened->store->Keys("jobs/").value(), ElementsAre("jobs/1", "jobs/3"));
  EXPECT_THAT(KeysSetAside(*opened->store).value(), ElementsAre("jobs/2"));
  EXPECT_EQ(opened->store->Read(SetAsideKey("jobs/2")).value(), "the sEcond job");
}

TEST_F(SqliteStoreTest, DamageWhileItIsOpenIsDataLoss) {
  Write({{"jobs/1", "one"}, {"jobs/2", "two"}});
  ASSERT_EQ(Database().Execute("UPDATE entries SET checksum = 7 WHERE key = x'6a6f62732f32'"),
            absl::OkStatus());
  Open();  // Sets it aside.
  const auto store = Open();
  ASSERT_EQ(store->Write({{"jobs/2", "again"}}), absl::OkStatus());
  ASSERT_EQ(Database().Execute("UPDATE entries SET checksum = 7 WHERE key = x'6a6f62732f32'"),
            absl::OkStatus());
  EXPECT_EQ(store->Read("jobs/2").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(store->Scan("jobs/").status().message()), HasSubstr("jobs/2"));
  EXPECT_EQ(store->Read("jobs/1").value(), "one");
}

// Enough entries for dozens of pages.
std::vector<Mutation> ManyEntries() {
  std::vector<Mutation> batch;
  for (int i = 0; i < 500; ++i)
    batch.push_back(
        {absl::StrCat("jobs/", 1000 + i), std::string(300, static_cast<char>('a' + i % 26))});
  return batch;
}

TEST_F(SqliteStoreTest, DamagedPagesAreRefusedAndSalvaged) {
  Write(ManyEntries());
  Edit([](std::string& text) {
    const size_t page = text.find("jobs/1200") / 4096 * 4096;
    text.replace(page, 64, 64, '\x55');  // The page's head: nothing on it can be found.
  });
  const absl::Status refused = Refusal();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("state repair"));
  const std::string saved = (folder_.path() / "saved.db").string();
  const int copied = SalvageStoreFile(Path(), saved).value();
  EXPECT_GE(copied, 450);
  EXPECT_LT(copied, 500);
  const auto store = std::move(OpenSqliteStore(saved)->store);
  EXPECT_EQ(store->Keys("jobs/").value().size(), static_cast<size_t>(copied));
  EXPECT_EQ(store->Read("jobs/1000").value(), std::string(300, 'a'));
  EXPECT_TRUE(store->Read("jobs/1499").ok());
}

// Whatever bytes of the file change, it is noticed or nothing has changed.
TEST_F(SqliteStoreTest, NoChangedByteIsBelieved) {
  Write(ManyEntries());
  ASSERT_EQ(Database().Execute("PRAGMA wal_checkpoint(TRUNCATE)"), absl::OkStatus());
  const auto before = Open()->Scan("").value();
  const std::string good = Path() + ".good";
  std::filesystem::copy_file(Path(), good);
  const size_t size = std::filesystem::file_size(good);
  int noticed = 0;
  for (size_t at = 101; at < size; at += size / 60) {
    std::filesystem::copy_file(good, Path(), std::filesystem::copy_options::overwrite_existing);
    Edit([&](std::string& text) { text[at] = static_cast<char>(text[at] ^ 0x10); });
    auto opened = OpenSqliteStore(Path());
    if (!opened.ok() || !opened->notes.empty()) {
      ++noticed;
      continue;
    }
    EXPECT_EQ(opened->store->Scan("").value(), before) << "byte " << at;
  }
  EXPECT_GT(noticed, 30);
}

TEST_F(SqliteStoreTest, IsCopiedWhileItIsWritten) {
  auto store = Open();
  ASSERT_EQ(store->Write(ManyEntries()), absl::OkStatus());
  const std::string copy = (folder_.path() / "copy.db").string();
  ASSERT_EQ(CopyStoreFile(Path(), copy), absl::OkStatus());
  ASSERT_EQ(store->Write({{"later", "x"}}), absl::OkStatus());
  EXPECT_EQ(OpenSqliteStore(copy)->store->Scan("").value().size(), 500u);
  EXPECT_EQ(CopyStoreFile(Path(), copy).code(), absl::StatusCode::kFailedPrecondition);
}

// As with a full disk: files may not grow any more.
TEST_F(SqliteStoreTest, AFullDiskLeavesTheBatchUnwritten) {
  auto store = Open();
  ASSERT_EQ(store->Write({{"k", "old"}}), absl::OkStatus());
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited = {};
  getrlimit(RLIMIT_FSIZE, &unlimited);
  rlimit full = unlimited;
  full.rlim_cur = std::filesystem::file_size(Path() + "-wal") + 6000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  const std::vector<Mutation> batch = {{"k", "new"}, {"large", std::string(200'000, 'x')}};
  const absl::Status status = store->Write(batch);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
  std::signal(SIGXFSZ, before);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(store->Scan("").value(), ElementsAre(Pair("k", "old")));
  EXPECT_EQ(store->Write(batch), absl::OkStatus());
  EXPECT_EQ(store->Keys("").value().size(), 2u);
}

}  // namespace
}  // namespace stagewright
