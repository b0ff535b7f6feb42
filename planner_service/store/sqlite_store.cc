#include "planner_service/store/sqlite_store.h"

#include <sqlite3.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "planner_service/store/store.h"

namespace stagewright {
namespace {

constexpr int kSchemaVersion = 1;

struct CloseDatabase {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};
struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;
using Statement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

class SqliteStore : public Store {
 public:
  SqliteStore(std::string path, Database db) : path_(std::move(path)), db_(std::move(db)) {}

  absl::Status Prepare() {
    absl::MutexLock lock(&mutex_);
    // An exclusive lock for as long as the process lives: two planners on one file would overwrite
    // each other.
    RETURN_IF_ERROR(Execute("PRAGMA locking_mode=EXCLUSIVE"));
    RETURN_IF_ERROR(Execute("PRAGMA journal_mode=WAL"));
    RETURN_IF_ERROR(Execute("PRAGMA synchronous=FULL"));
    RETURN_IF_ERROR(
        Execute("CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, value BLOB NOT NULL) "
                "WITHOUT ROWID"));
    return CheckVersion();
  }

  absl::Status Write(const std::vector<Mutation>& batch) override {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
    for (const Mutation& mutation : batch) {
      if (absl::Status status = Apply(mutation); !status.ok()) {
        Execute("ROLLBACK").IgnoreError();
        return status;
      }
    }
    absl::Status status = Execute("COMMIT");
    if (!status.ok()) Execute("ROLLBACK").IgnoreError();
    return status;
  }

  absl::StatusOr<std::string> Read(const std::string& key) const override {
    absl::MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(Statement select, Compile("SELECT value FROM entries WHERE key = ?1"));
    BindText(select.get(), 1, key);
    const int result = sqlite3_step(select.get());
    if (result == SQLITE_DONE)
      return absl::NotFoundError(absl::StrCat(path_, ": no entry \"", key, "\""));
    if (result != SQLITE_ROW) return Error();
    return Column(select.get(), 0);
  }

  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Scan(
      const std::string& prefix) const override {
    absl::MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(
        Statement select,
        Compile("SELECT key, value FROM entries WHERE substr(key, 1, ?2) = ?1 ORDER BY key"));
    BindText(select.get(), 1, prefix);
    sqlite3_bind_int64(select.get(), 2, static_cast<sqlite3_int64>(prefix.size()));
    std::vector<std::pair<std::string, std::string>> entries;
    int result = SQLITE_ROW;
    while ((result = sqlite3_step(select.get())) == SQLITE_ROW) {
      entries.emplace_back(Column(select.get(), 0), Column(select.get(), 1));
    }
    if (result != SQLITE_DONE) return Error();
    return entries;
  }

 private:
  static void BindText(sqlite3_stmt* statement, int index, const std::string& text) {
    sqlite3_bind_text64(statement, index, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  }

  static std::string Column(sqlite3_stmt* statement, int column) {
    const void* bytes = sqlite3_column_blob(statement, column);
    const int size = sqlite3_column_bytes(statement, column);
    return bytes == nullptr ? std::string() : std::string(static_cast<const char*>(bytes), size);
  }

  absl::Status Error() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const int code = sqlite3_errcode(db_.get()) & 0xff;
    const std::string message = absl::StrCat("store ", path_, ": ", sqlite3_errmsg(db_.get()));
    switch (code) {
      case SQLITE_BUSY:
      case SQLITE_LOCKED:
        return absl::FailedPreconditionError(
            absl::StrCat(message, " (is another planner using it?)"));
      case SQLITE_NOTADB:
      case SQLITE_CORRUPT:
        return absl::FailedPreconditionError(
            absl::StrCat(message, "; it is not a Stagewright store or is damaged"));
      case SQLITE_FULL:
        return absl::ResourceExhaustedError(message);
      default:
        return absl::UnavailableError(message);
    }
  }

  absl::StatusOr<Statement> Compile(const char* sql) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(db_.get(), sql, -1, &statement, nullptr) != SQLITE_OK) return Error();
    return Statement(statement);
  }

  absl::Status Execute(const char* sql) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr) == SQLITE_OK ? absl::OkStatus()
                                                                                : Error();
  }

  absl::Status Apply(const Mutation& mutation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ASSIGN_OR_RETURN(Statement statement,
                     Compile(mutation.value.has_value()
                                 ? "INSERT INTO entries (key, value) VALUES (?1, ?2) ON CONFLICT "
                                   "(key) DO UPDATE SET value = excluded.value"
                                 : "DELETE FROM entries WHERE key = ?1"));
    BindText(statement.get(), 1, mutation.key);
    if (mutation.value.has_value()) {
      sqlite3_bind_blob64(statement.get(), 2, mutation.value->data(), mutation.value->size(),
                          SQLITE_TRANSIENT);
    }
    return sqlite3_step(statement.get()) == SQLITE_DONE ? absl::OkStatus() : Error();
  }

  absl::Status CheckVersion() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ASSIGN_OR_RETURN(Statement pragma, Compile("PRAGMA user_version"));
    if (sqlite3_step(pragma.get()) != SQLITE_ROW) return Error();
    const int version = sqlite3_column_int(pragma.get(), 0);
    pragma.reset();
    if (version == kSchemaVersion) return absl::OkStatus();
    if (version == 0) return Execute(absl::StrCat("PRAGMA user_version=", kSchemaVersion).c_str());
    return absl::FailedPreconditionError(
        absl::StrCat("store ", path_, ": written by a newer Stagewright (schema ", version, ")"));
  }

  const std::string path_;
  mutable absl::Mutex mutex_;
  const Database db_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path) {
  sqlite3* raw = nullptr;
  const int result =
      sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  Database db(raw);
  if (result != SQLITE_OK) {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", path, ": ", raw == nullptr ? "out of memory" : sqlite3_errmsg(raw)));
  }
  auto store = std::make_unique<SqliteStore>(path, std::move(db));
  RETURN_IF_ERROR(store->Prepare());
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace stagewright
