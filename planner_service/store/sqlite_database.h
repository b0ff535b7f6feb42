// A connection to a SQLite file whose table `entries` is a store's: key, value and checksum.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace stagewright {

struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const;
};
using SqliteStatement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

// Not thread-safe. Errors name the file: FAILED_PRECONDITION if it is held by another process or is
// no database, RESOURCE_EXHAUSTED if the disk is full, else UNAVAILABLE.
class SqliteDatabase {
 public:
  // Opens a file that is there. FAILED_PRECONDITION if it is not, or cannot be opened.
  static absl::StatusOr<SqliteDatabase> Open(const std::string& path);
  // Makes an empty one, which must not exist. ":memory:" is kept nowhere.
  static absl::StatusOr<SqliteDatabase> Create(const std::string& path);

  const std::string& path() const { return path_; }
  sqlite3* get() const { return db_.get(); }

  // SQL of ours. It may call entry_checksum(key, value).
  absl::Status Execute(const std::string& sql) const;
  absl::StatusOr<SqliteStatement> Compile(const char* sql) const;
  // The first column of the first row, 0 without one.
  absl::StatusOr<int64_t> Number(const char* sql) const;
  // The first column of all rows.
  absl::StatusOr<std::vector<std::string>> Texts(const char* sql) const;
  // What the last call on the connection failed with.
  absl::Status Error() const;

 private:
  struct Close {
    void operator()(sqlite3* db) const;
  };
  static absl::StatusOr<SqliteDatabase> OpenWith(const std::string& path, int flags);

  std::string path_;
  std::unique_ptr<sqlite3, Close> db_;
};

void BindBlob(sqlite3_stmt* statement, int index, absl::string_view bytes);
std::string ColumnBytes(sqlite3_stmt* statement, int column);

}  // namespace stagewright
