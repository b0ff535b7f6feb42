#include "planner_service/store/sqlite_store.h"

#include <sqlite3.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "common/base/failpoint.h"
#include "planner_service/store/checksum.h"
#include "planner_service/store/prefix.h"
#include "planner_service/store/set_aside.h"
#include "planner_service/store/sqlite_database.h"
#include "planner_service/store/sqlite_file.h"

namespace stagewright {
namespace {

constexpr char kInMemory[] = ":memory:";

class SqliteStore : public Store {
 public:
  SqliteStore(std::optional<StoreLock> lock, SqliteDatabase db)
      : lock_(std::move(lock)), db_(std::move(db)), place_(db_) {}

  absl::Status WriteIf(const std::vector<Condition>& conditions,
                       const std::vector<Mutation>& batch) override {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(place_.Check());
    RETURN_IF_ERROR(db_.Execute("BEGIN IMMEDIATE"));
    absl::Status status = Apply(conditions, batch);
    STAGEWRIGHT_FAILPOINT("store.commit.before");
    if (status.ok()) status = db_.Execute("COMMIT");
    STAGEWRIGHT_FAILPOINT("store.commit.after");
    if (!status.ok()) db_.Execute("ROLLBACK").IgnoreError();
    return status;
  }

  absl::StatusOr<std::string> Read(const std::string& key) const override {
    absl::MutexLock lock(&mutex_);
    return Get(key);
  }

  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Scan(
      const std::string& prefix) const override {
    absl::MutexLock lock(&mutex_);
    std::vector<std::pair<std::string, std::string>> entries;
    RETURN_IF_ERROR(
        ForEach("SELECT key, value, checksum FROM entries WHERE key >= ?1 AND "
                "(?2 IS NULL OR key < ?2) ORDER BY key",
                prefix, [&](sqlite3_stmt* row) -> absl::Status {
                  entries.emplace_back(ColumnBytes(row, 0), ColumnBytes(row, 1));
                  return CheckRow(row, entries.back().first, entries.back().second);
                }));
    return entries;
  }

  absl::StatusOr<std::vector<std::string>> Keys(const std::string& prefix) const override {
    absl::MutexLock lock(&mutex_);
    std::vector<std::string> keys;
    RETURN_IF_ERROR(
        ForEach("SELECT key FROM entries WHERE key >= ?1 AND (?2 IS NULL OR key < ?2) ORDER BY key",
                prefix, [&](sqlite3_stmt* row) {
                  keys.push_back(ColumnBytes(row, 0));
                  return absl::OkStatus();
                }));
    return keys;
  }

  // Moves entries that are not as they were written out of the way; their keys.
  absl::StatusOr<std::vector<std::string>> SetDamagedAside() {
    absl::MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(const std::vector<std::string> keys, DamagedEntries(db_));
    for (const std::string& key : keys) {
      ASSIGN_OR_RETURN(const SqliteStatement select,
                       db_.Compile("SELECT value FROM entries WHERE key = ?1"));
      BindBlob(select.get(), 1, key);
      if (sqlite3_step(select.get()) != SQLITE_ROW) {
        return absl::FailedPreconditionError(absl::StrCat(
            "store ", db_.path(), ": the entry ", absl::CHexEscape(key),
            " is damaged and not where it belongs: `stagewright-planner state repair` saves the "
            "others"));
      }
      const Mutation moved{SetAsideKey(key), ColumnBytes(select.get(), 0)};
      RETURN_IF_ERROR(db_.Execute("BEGIN IMMEDIATE"));
      absl::Status status = Apply({}, {moved, {key, std::nullopt}});
      if (status.ok()) status = db_.Execute("COMMIT");
      if (!status.ok()) {
        db_.Execute("ROLLBACK").IgnoreError();
        return status;
      }
    }
    return keys;
  }

 private:
  absl::Status CheckRow(sqlite3_stmt* row, const std::string& key, const std::string& value) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (sqlite3_column_int64(row, 2) == EntryChecksum(key, value)) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("store ", db_.path(), ": entry ", absl::CHexEscape(key), " is damaged"));
  }

  absl::StatusOr<std::string> Get(const std::string& key) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ASSIGN_OR_RETURN(const SqliteStatement select,
                     db_.Compile("SELECT key, value, checksum FROM entries WHERE key = ?1"));
    BindBlob(select.get(), 1, key);
    const int result = sqlite3_step(select.get());
    if (result == SQLITE_DONE) {
      return absl::NotFoundError(
          absl::StrCat("store ", db_.path(), ": no entry \"", absl::CHexEscape(key), "\""));
    }
    if (result != SQLITE_ROW) return db_.Error();
    std::string value = ColumnBytes(select.get(), 1);
    RETURN_IF_ERROR(CheckRow(select.get(), key, value));
    return value;
  }

  template <typename Visit>
  absl::Status ForEach(const char* sql, const std::string& prefix, Visit visit) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ASSIGN_OR_RETURN(const SqliteStatement select, db_.Compile(sql));
    BindBlob(select.get(), 1, prefix);
    const std::string behind = BehindPrefix(prefix);
    if (!behind.empty()) BindBlob(select.get(), 2, behind);
    int result = SQLITE_ROW;
    while ((result = sqlite3_step(select.get())) == SQLITE_ROW)
      RETURN_IF_ERROR(visit(select.get()));
    return result == SQLITE_DONE ? absl::OkStatus() : db_.Error();
  }

  // In a transaction.
  absl::Status Apply(const std::vector<Condition>& conditions, const std::vector<Mutation>& batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const Condition& condition : conditions) {
      const auto value = Get(condition.key);
      if (!value.ok() && !absl::IsNotFound(value.status())) return value.status();
      if (condition.value != (value.ok() ? std::optional(*value) : std::nullopt)) {
        return absl::AbortedError(absl::StrCat("store ", db_.path(), ": entry ",
                                               absl::CHexEscape(condition.key),
                                               " is not as it was expected"));
      }
    }
    for (const Mutation& mutation : batch) RETURN_IF_ERROR(Apply(mutation));
    return absl::OkStatus();
  }

  absl::Status Apply(const Mutation& mutation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ASSIGN_OR_RETURN(
        const SqliteStatement statement,
        db_.Compile(mutation.value.has_value()
                        ? "INSERT INTO entries (key, value, checksum) VALUES (?1, ?2, ?3) ON "
                          "CONFLICT (key) DO UPDATE SET value = excluded.value, "
                          "checksum = excluded.checksum"
                        : "DELETE FROM entries WHERE key = ?1"));
    BindBlob(statement.get(), 1, mutation.key);
    if (mutation.value.has_value()) {
      BindBlob(statement.get(), 2, *mutation.value);
      sqlite3_bind_int64(statement.get(), 3, EntryChecksum(mutation.key, *mutation.value));
    }
    return sqlite3_step(statement.get()) == SQLITE_DONE ? absl::OkStatus() : db_.Error();
  }

  const std::optional<StoreLock> lock_;
  mutable absl::Mutex mutex_;
  const SqliteDatabase db_;
  const StorePlace place_;
};

// A store that is not there is a new one, unless its log is: then it was moved away alone.
absl::Status MakeIfAbsent(const std::string& path, std::vector<std::string>& notes) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return absl::OkStatus();
  if (std::filesystem::exists(path + "-wal", ignored)) {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", path, ": it is not there, but its log ", path,
                     "-wal is: restore a backup, or remove that file to begin without jobs"));
  }
  RETURN_IF_ERROR(MakeStoreFile(path));
  notes.push_back(absl::StrCat("new state in ", path));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OpenedStore> OpenSqliteStore(const std::string& path) {
  OpenedStore opened;
  if (path == kInMemory) {
    ASSIGN_OR_RETURN(SqliteDatabase db, CreateStoreInMemory());
    opened.store = std::make_unique<SqliteStore>(std::nullopt, std::move(db));
    return opened;
  }
  ASSIGN_OR_RETURN(StoreLock lock, StoreLock::Take(path));
  RETURN_IF_ERROR(MakeIfAbsent(path, opened.notes));
  ASSIGN_OR_RETURN(SqliteDatabase db, OpenStoreFile(path, OpenFor::kPlanner));
  ASSIGN_OR_RETURN(const std::vector<std::string> pages, DamagedPages(db));
  if (!pages.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", path, ": it is damaged (", absl::StrJoin(pages, "; "),
                     "): `stagewright-planner state repair` saves what can be read"));
  }
  auto store = std::make_unique<SqliteStore>(std::move(lock), std::move(db));
  ASSIGN_OR_RETURN(const std::vector<std::string> damaged, store->SetDamagedAside());
  for (const std::string& key : damaged) {
    opened.notes.push_back(absl::StrCat("store ", path, ": entry ", absl::CHexEscape(key),
                                        " is damaged and was set aside"));
  }
  opened.store = std::move(store);
  return opened;
}

}  // namespace stagewright
