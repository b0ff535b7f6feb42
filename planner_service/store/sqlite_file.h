// The file of a SQLite store as a whole: made, taken over from an older version, looked through,
// copied and saved from.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "planner_service/store/sqlite_database.h"

namespace stagewright {

// What keeps all but one planner from a store, for as long as it lives: a lock on PATH.lock, which
// the system gives up when the process ends, however it does. Of a symbolic link, the file that it
// leads to is locked: two names are one store.
class StoreLock {
 public:
  // FAILED_PRECONDITION if another process has it, if the file cannot be made, and if the store's
  // has several names, hard links, which no lock by name holds apart.
  static absl::StatusOr<StoreLock> Take(const std::string& path);
  StoreLock(StoreLock&& other) noexcept;
  StoreLock& operator=(StoreLock&& other) noexcept;
  ~StoreLock();

 private:
  explicit StoreLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

// The files of a store that is open, as they were then. What is written to a file that was moved,
// removed or replaced since is lost to whoever opens the store's path next.
class StorePlace {
 public:
  explicit StorePlace(const SqliteDatabase& database);

  // UNAVAILABLE unless they are still there, of their names.
  absl::Status Check() const;

 private:
  struct File {
    std::string path;
    dev_t device = 0;
    ino_t number = 0;
  };
  static std::optional<File> Find(const std::string& path);

  std::vector<File> files_;
};

// Has `fill` write a database that gets the name `path`, where nothing may be, once it is whole.
// FAILED_PRECONDITION; UNAVAILABLE; errors of `fill`.
absl::Status MakeWholeFile(const std::string& path,
                           const std::function<absl::Status(const SqliteDatabase&)>& fill);

// Makes the table of a store in an empty database.
absl::Status MakeTable(const SqliteDatabase& database);

// Makes a store without entries at `path`. It is there whole or not at all, so that a file without
// contents is never a new store. Errors of MakeWholeFile.
absl::Status MakeStoreFile(const std::string& path);

// One that is kept nowhere.
absl::StatusOr<SqliteDatabase> CreateStoreInMemory();

// FAILED_PRECONDITION if the file is not there or has no bytes, which no store ever is.
absl::Status CheckNotEmpty(const std::string& path);

// Only a planner changes a store, and turns one of the schema before this one into one of this.
enum class OpenFor { kPlanner, kReading };

// Opens a store that is there. FAILED_PRECONDITION if it is empty, foreign, of a newer version, or
// damaged in what is not an entry.
absl::StatusOr<SqliteDatabase> OpenStoreFile(const std::string& path, OpenFor purpose);

// The first things wrong with the file's pages; none: only entries can be damaged. Reads the file.
absl::StatusOr<std::vector<std::string>> DamagedPages(const SqliteDatabase& database);
// Keys of entries that are not as they were written, in order. Reads the file.
absl::StatusOr<std::vector<std::string>> DamagedEntries(const SqliteDatabase& database);

// Keys of entries of which `is_readable` says that they are not, but are as they were written.
absl::StatusOr<std::vector<std::string>> UnreadableEntries(
    const SqliteDatabase& database,
    const std::function<bool(absl::string_view key, const std::string& value)>& is_readable);

// Whether two stores have the same entries.
absl::StatusOr<bool> AreAlike(const std::string& a, const std::string& b);

// Copies a store, which a planner may be writing to, as it is at one moment, to a file that must
// not be there. The copy is there whole or not at all.
absl::Status CopyStoreFile(const std::string& from, const std::string& to);

}  // namespace stagewright
