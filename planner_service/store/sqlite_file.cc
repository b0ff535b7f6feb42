#include "planner_service/store/sqlite_file.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/failpoint.h"

namespace stagewright {
namespace {

constexpr int kSchemaVersion = 2;
constexpr int kApplicationId = 0x53746757;  // "StgW", as `file` shows it.
constexpr char kTable[] =
    "entries (key BLOB PRIMARY KEY, value BLOB NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID";
constexpr int kMostPages = 10;  // Damaged ones that are named.

absl::Status SystemError(absl::string_view what, const std::string& path) {
  return absl::FailedPreconditionError(
      absl::StrCat("store ", path, ": ", what, ": ", std::strerror(errno)));
}

std::string MarkOurs() {
  return absl::StrCat("PRAGMA application_id=", kApplicationId,
                      "; PRAGMA user_version=", kSchemaVersion, ";");
}

void RemoveWithLogs(const std::string& path) {
  for (const char* suffix : {"", "-wal", "-shm", "-journal"})
    std::remove(absl::StrCat(path, suffix).c_str());
}

// Whether `from` has the name `to` alone, which must have been free; errno says why not. In one
// step, where the file system can: a crash leaves no store two names.
bool MoveToFreeName(const std::string& from, const std::string& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  return link(from.c_str(), to.c_str()) == 0 && unlink(from.c_str()) == 0;
}

// Gives the whole file `made` the name `path` unless there is something of that name.
absl::Status Publish(const std::string& made, const std::string& path) {
  const int file = open(made.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return SystemError("cannot be read", made);
  const bool synced = fsync(file) == 0;
  close(file);
  if (!synced) return SystemError("cannot be written", made);
  STAGEWRIGHT_FAILPOINT("store.make.before");
  if (!MoveToFreeName(made, path)) return SystemError("cannot be made", path);
  STAGEWRIGHT_FAILPOINT("store.make.after");
  const std::string folder = std::filesystem::absolute(path).parent_path().string();
  const int parent = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (parent >= 0) {
    fsync(parent);
    close(parent);
  }
  return absl::OkStatus();
}

absl::Status Upgrade(const SqliteDatabase& database) {
  return database.Execute(
      absl::StrCat("BEGIN IMMEDIATE; ALTER TABLE entries RENAME TO older; CREATE TABLE ", kTable,
                   "; INSERT INTO entries SELECT CAST(key AS BLOB), value, "
                   "entry_checksum(CAST(key AS BLOB), value) FROM older; DROP TABLE older; ",
                   MarkOurs(), "COMMIT"));
}

absl::Status CheckOurs(const SqliteDatabase& database, OpenFor purpose) {
  ASSIGN_OR_RETURN(const int64_t version, database.Number("PRAGMA user_version"));
  ASSIGN_OR_RETURN(const int64_t tables,
                   database.Number("SELECT count(*) FROM sqlite_schema WHERE name = 'entries'"));
  if (version > kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "store ", database.path(), ": written by a newer Stagewright (schema ", version, ")"));
  }
  if (version < 1 || tables != 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", database.path(), ": it is not a Stagewright store or is damaged"));
  }
  if (version == kSchemaVersion) return absl::OkStatus();
  if (purpose == OpenFor::kPlanner) return Upgrade(database);
  return absl::FailedPreconditionError(
      absl::StrCat("store ", database.path(), ": written by an older Stagewright (schema ", version,
                   "); a planner of this version takes it over when it starts"));
}

// SQLite keeps its log beside the name by which it opened the file, and a lock of ours is of a
// name: by another one, a second planner would write to the same file without the log of the first.
absl::Status CheckFileOfOneName(const std::string& path) {
  struct stat file = {};
  if (stat(path.c_str(), &file) != 0) return absl::OkStatus();
  if (S_ISDIR(file.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", path, ": it is a folder, and no file"));
  }
  if (file.st_nlink <= 1) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "store ", path, ": the file has ", file.st_nlink,
      " names (hard links), by which two planners could use it at once: end both, and "
      "remove all names but one, that with a file NAME-wal beside it if there is one"));
}

}  // namespace

absl::StatusOr<StoreLock> StoreLock::Take(const std::string& path) {
  std::error_code ignored;  // Then the path is as good as it gets.
  const std::filesystem::path real = std::filesystem::weakly_canonical(path, ignored);
  const std::string name = (ignored ? path : real.string()) + ".lock";
  const int fd = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return SystemError("cannot be locked", path);
  StoreLock lock(fd);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "store ", path, ": it is in use (is another planner using it?); its lock is ", name));
  }
  RETURN_IF_ERROR(CheckFileOfOneName(path));
  return lock;
}

StoreLock::StoreLock(StoreLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
StoreLock& StoreLock::operator=(StoreLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
StoreLock::~StoreLock() {
  if (fd_ >= 0) close(fd_);
}

StorePlace::StorePlace(const SqliteDatabase& database) {
  const char* name = sqlite3_db_filename(database.get(), "main");  // Behind symbolic links.
  if (name == nullptr || *name == '\0') return;
  for (const char* suffix : {"", "-wal"}) {
    if (auto file = Find(absl::StrCat(name, suffix)); file.has_value())
      files_.push_back(*std::move(file));
  }
}

std::optional<StorePlace::File> StorePlace::Find(const std::string& path) {
  struct stat file = {};
  if (stat(path.c_str(), &file) != 0) return std::nullopt;
  return File{path, file.st_dev, file.st_ino};
}

absl::Status StorePlace::Check() const {
  for (const File& file : files_) {
    const std::optional<File> now = Find(file.path);
    if (now.has_value() && now->device == file.device && now->number == file.number) continue;
    return absl::UnavailableError(
        absl::StrCat("store ", file.path,
                     ": it was moved, removed or replaced while the planner runs, and what "
                     "is written now would be lost: put it back, or start the planner anew"));
  }
  return absl::OkStatus();
}

absl::Status MakeWholeFile(const std::string& path,
                           const std::function<absl::Status(const SqliteDatabase&)>& fill) {
  if (std::filesystem::exists(path))
    return absl::FailedPreconditionError(absl::StrCat(path, " is there already"));
  const std::string partial = absl::StrCat(path, ".partial-", getpid());
  RemoveWithLogs(partial);
  const absl::Cleanup remove = [&] { RemoveWithLogs(partial); };
  {
    ASSIGN_OR_RETURN(const SqliteDatabase database, SqliteDatabase::Create(partial));
    RETURN_IF_ERROR(database.Execute("PRAGMA synchronous=FULL"));
    RETURN_IF_ERROR(fill(database));
  }
  return Publish(partial, path);
}

absl::Status MakeTable(const SqliteDatabase& database) {
  return database.Execute(absl::StrCat("BEGIN; CREATE TABLE ", kTable, "; ", MarkOurs(), "COMMIT"));
}

absl::Status MakeStoreFile(const std::string& path) { return MakeWholeFile(path, MakeTable); }

absl::StatusOr<SqliteDatabase> CreateStoreInMemory() {
  ASSIGN_OR_RETURN(SqliteDatabase database, SqliteDatabase::Create(":memory:"));
  RETURN_IF_ERROR(MakeTable(database));
  return database;
}

absl::Status CheckNotEmpty(const std::string& path) {
  struct stat file = {};
  if (stat(path.c_str(), &file) != 0) return SystemError("cannot be opened", path);
  if (file.st_size > 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "store ", path,
      ": the file is empty, which a store never is: its contents are lost. Restore a backup, or "
      "remove the file to begin without jobs"));
}

absl::StatusOr<SqliteDatabase> OpenStoreFile(const std::string& path, OpenFor purpose) {
  RETURN_IF_ERROR(CheckNotEmpty(path));
  ASSIGN_OR_RETURN(SqliteDatabase database, SqliteDatabase::Open(path));
  RETURN_IF_ERROR(database.Execute("PRAGMA busy_timeout=5000"));
  if (purpose == OpenFor::kPlanner) {
    RETURN_IF_ERROR(database.Execute("PRAGMA journal_mode=WAL"));
    RETURN_IF_ERROR(database.Execute("PRAGMA synchronous=FULL"));
  }
  RETURN_IF_ERROR(CheckOurs(database, purpose));
  return database;
}

absl::StatusOr<std::vector<std::string>> DamagedPages(const SqliteDatabase& database) {
  ASSIGN_OR_RETURN(std::vector<std::string> found,
                   database.Texts(absl::StrCat("PRAGMA quick_check(", kMostPages, ")").c_str()));
  if (found == std::vector<std::string>{"ok"}) found.clear();
  return found;
}

absl::StatusOr<std::vector<std::string>> DamagedEntries(const SqliteDatabase& database) {
  return database.Texts(
      "SELECT key FROM entries WHERE checksum IS NOT entry_checksum(key, value) ORDER BY key");
}

absl::StatusOr<std::vector<std::string>> UnreadableEntries(
    const SqliteDatabase& database,
    const std::function<bool(absl::string_view, const std::string&)>& is_readable) {
  ASSIGN_OR_RETURN(const SqliteStatement select,
                   database.Compile("SELECT key, value FROM entries WHERE checksum = "
                                    "entry_checksum(key, value) ORDER BY key"));
  std::vector<std::string> keys;
  int result = SQLITE_ROW;
  while ((result = sqlite3_step(select.get())) == SQLITE_ROW) {
    std::string key = ColumnBytes(select.get(), 0);
    if (!is_readable(key, ColumnBytes(select.get(), 1))) keys.push_back(std::move(key));
  }
  if (result != SQLITE_DONE) return database.Error();
  return keys;
}

absl::StatusOr<bool> AreAlike(const std::string& a, const std::string& b) {
  ASSIGN_OR_RETURN(const SqliteDatabase one, OpenStoreFile(a, OpenFor::kReading));
  ASSIGN_OR_RETURN(const SqliteDatabase other, OpenStoreFile(b, OpenFor::kReading));
  constexpr char kAll[] = "SELECT key, value FROM entries ORDER BY key";
  ASSIGN_OR_RETURN(const SqliteStatement left, one.Compile(kAll));
  ASSIGN_OR_RETURN(const SqliteStatement right, other.Compile(kAll));
  while (true) {
    const int result = sqlite3_step(left.get());
    if (result != sqlite3_step(right.get())) return false;
    if (result != SQLITE_ROW) return result == SQLITE_DONE;
    for (const int column : {0, 1}) {
      if (ColumnBytes(left.get(), column) != ColumnBytes(right.get(), column)) return false;
    }
  }
}

absl::Status CopyStoreFile(const std::string& from, const std::string& to) {
  ASSIGN_OR_RETURN(const SqliteDatabase source, OpenStoreFile(from, OpenFor::kReading));
  return MakeWholeFile(to, [&](const SqliteDatabase& copy) -> absl::Status {
    sqlite3_backup* backup = sqlite3_backup_init(copy.get(), "main", source.get(), "main");
    if (backup == nullptr) return copy.Error();
    // All pages in one step: one moment's state, while a planner goes on writing to its log.
    sqlite3_backup_step(backup, -1);
    if (sqlite3_backup_finish(backup) != SQLITE_OK) return copy.Error();
    return copy.Execute("PRAGMA journal_mode=DELETE");
  });
}

}  // namespace stagewright
