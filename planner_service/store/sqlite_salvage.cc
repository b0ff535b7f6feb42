#include "planner_service/store/sqlite_salvage.h"

#include <sqlite3.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner_service/store/sqlite_database.h"
#include "planner_service/store/sqlite_file.h"

namespace stagewright {
namespace {

constexpr int kMostProbes = 4000;
constexpr int kDeepest = 32;  // Bisections of one gap.

// A key in the middle between two, as of numbers after the point.
std::string Between(const std::string& low, const std::string& high) {
  const size_t size = std::max(low.size(), high.size()) + 1;
  const auto digit = [](const std::string& key, size_t i) {
    return i < key.size() ? static_cast<unsigned char>(key[i]) : 0;
  };
  std::string sum(size, '\0');
  int carry = 0;
  for (size_t i = size; i-- > 0;) {
    carry += digit(low, i) + digit(high, i);
    sum[i] = static_cast<char>(carry & 0xff);
    carry >>= 8;
  }
  for (size_t i = 0; i < size; ++i) {
    const int value = (carry << 8) | digit(sum, i);
    sum[i] = static_cast<char>(value >> 1);
    carry = value & 1;
  }
  return sum;
}

// Reads a damaged table from many places: what is behind a damaged page in one direction is before
// it in another.
class Salvage {
 public:
  Salvage(const SqliteDatabase& source, sqlite3_stmt* insert) : source_(source), insert_(insert) {}

  absl::StatusOr<int> All() {
    // Behind every key of ours; none begins with so many of these bytes.
    const std::string last(8, '\xff');
    std::string low, high = last;
    ASSIGN_OR_RETURN(const bool up, Read(kUp, "", last, low));
    if (up) return copied_;
    ASSIGN_OR_RETURN(const bool down, Read(kDown, last, low, high));
    if (!down) RETURN_IF_ERROR(Gap(low, high, 0));
    return copied_;
  }

 private:
  static constexpr char kUp[] =
      "SELECT key, value, checksum FROM entries WHERE key >= ?1 AND key < ?2 ORDER BY key";
  static constexpr char kDown[] =
      "SELECT key, value, checksum FROM entries WHERE key < ?1 AND key > ?2 ORDER BY key DESC";

  // Copies what there is between two keys until it cannot be read on; `reached` is the last key,
  // unchanged without one. Whether it came to the end.
  absl::StatusOr<bool> Read(const char* sql, const std::string& from, const std::string& to,
                            std::string& reached) {
    ASSIGN_OR_RETURN(const SqliteStatement select, source_.Compile(sql));
    BindBlob(select.get(), 1, from);
    BindBlob(select.get(), 2, to);
    int result = SQLITE_ROW;
    while ((result = sqlite3_step(select.get())) == SQLITE_ROW) {
      reached = ColumnBytes(select.get(), 0);
      BindBlob(insert_, 1, reached);
      BindBlob(insert_, 2, ColumnBytes(select.get(), 1));
      sqlite3_bind_int64(insert_, 3, sqlite3_column_int64(select.get(), 2));
      if (sqlite3_step(insert_) != SQLITE_DONE)
        return absl::UnavailableError(sqlite3_errmsg(sqlite3_db_handle(insert_)));
      copied_ += sqlite3_changes(sqlite3_db_handle(insert_));
      sqlite3_reset(insert_);
    }
    return result == SQLITE_DONE;
  }

  // What can be read between two keys, from their middle.
  absl::Status Gap(const std::string& low, const std::string& high, int depth) {
    if (depth == kDeepest || ++probes_ > kMostProbes) return absl::OkStatus();
    const std::string middle = Between(low, high);
    std::string above = middle, below = middle;
    ASSIGN_OR_RETURN(const bool up, Read(kUp, middle, high, above));
    ASSIGN_OR_RETURN(const bool down, Read(kDown, middle, low, below));
    if (!down) RETURN_IF_ERROR(Gap(low, below, depth + 1));
    if (!up) RETURN_IF_ERROR(Gap(above, high, depth + 1));
    return absl::OkStatus();
  }

  const SqliteDatabase& source_;
  sqlite3_stmt* const insert_;
  int copied_ = 0;
  int probes_ = 0;
};

}  // namespace

absl::StatusOr<int> SalvageStoreFile(const std::string& from, const std::string& to) {
  RETURN_IF_ERROR(CheckNotEmpty(from));
  ASSIGN_OR_RETURN(const SqliteDatabase source, SqliteDatabase::Open(from));
  int copied = 0;
  const auto fill = [&](const SqliteDatabase& made) -> absl::Status {
    RETURN_IF_ERROR(MakeTable(made));
    RETURN_IF_ERROR(made.Execute("BEGIN"));
    ASSIGN_OR_RETURN(const SqliteStatement insert,
                     made.Compile("INSERT OR IGNORE INTO entries VALUES (?1, ?2, ?3)"));
    ASSIGN_OR_RETURN(copied, Salvage(source, insert.get()).All());
    if (copied == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("store ", from, ": no entry can be read any more: restore a backup"));
    }
    return made.Execute("COMMIT");
  };
  RETURN_IF_ERROR(MakeWholeFile(to, fill));
  return copied;
}

}  // namespace stagewright
