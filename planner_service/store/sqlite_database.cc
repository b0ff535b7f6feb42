#include "planner_service/store/sqlite_database.h"

#include <sqlite3.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "planner_service/store/checksum.h"

namespace stagewright {
namespace {

absl::string_view BytesOf(sqlite3_value* value) {
  const void* bytes = sqlite3_value_blob(value);
  const auto size = static_cast<size_t>(sqlite3_value_bytes(value));
  return bytes == nullptr ? absl::string_view()
                          : absl::string_view(static_cast<const char*>(bytes), size);
}

void ChecksumOfRow(sqlite3_context* context, int /*count*/, sqlite3_value** arguments) {
  sqlite3_result_int64(context, EntryChecksum(BytesOf(arguments[0]), BytesOf(arguments[1])));
}

}  // namespace

void FinalizeStatement::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
void SqliteDatabase::Close::operator()(sqlite3* db) const { sqlite3_close(db); }

absl::StatusOr<SqliteDatabase> SqliteDatabase::OpenWith(const std::string& path, int flags) {
  sqlite3* raw = nullptr;
  const int result = sqlite3_open_v2(path.c_str(), &raw, flags, nullptr);
  SqliteDatabase database;
  database.path_ = path;
  database.db_.reset(raw);
  if (result != SQLITE_OK) {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", path, ": ", raw == nullptr ? "out of memory" : sqlite3_errmsg(raw)));
  }
  if (sqlite3_create_function(raw, "entry_checksum", 2, SQLITE_UTF8 | SQLITE_DETERMINISTIC, nullptr,
                              ChecksumOfRow, nullptr, nullptr) != SQLITE_OK)
    return database.Error();
  return database;
}

absl::StatusOr<SqliteDatabase> SqliteDatabase::Open(const std::string& path) {
  return OpenWith(path, SQLITE_OPEN_READWRITE);
}

absl::StatusOr<SqliteDatabase> SqliteDatabase::Create(const std::string& path) {
  return OpenWith(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
}

absl::Status SqliteDatabase::Execute(const std::string& sql) const {
  return sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK
             ? absl::OkStatus()
             : Error();
}

absl::StatusOr<SqliteStatement> SqliteDatabase::Compile(const char* sql) const {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(db_.get(), sql, -1, &statement, nullptr) != SQLITE_OK) return Error();
  return SqliteStatement(statement);
}

absl::StatusOr<int64_t> SqliteDatabase::Number(const char* sql) const {
  ASSIGN_OR_RETURN(const SqliteStatement select, Compile(sql));
  const int result = sqlite3_step(select.get());
  if (result == SQLITE_ROW) return sqlite3_column_int64(select.get(), 0);
  if (result == SQLITE_DONE) return 0;
  return Error();
}

absl::StatusOr<std::vector<std::string>> SqliteDatabase::Texts(const char* sql) const {
  ASSIGN_OR_RETURN(const SqliteStatement select, Compile(sql));
  std::vector<std::string> texts;
  int result = SQLITE_ROW;
  while ((result = sqlite3_step(select.get())) == SQLITE_ROW)
    texts.push_back(ColumnBytes(select.get(), 0));
  if (result != SQLITE_DONE) return Error();
  return texts;
}

absl::Status SqliteDatabase::Error() const {
  const std::string message = absl::StrCat("store ", path_, ": ", sqlite3_errmsg(db_.get()));
  switch (sqlite3_errcode(db_.get()) & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::FailedPreconditionError(
          absl::StrCat(message, " (is another planner using it?)"));
    case SQLITE_NOTADB:
      return absl::FailedPreconditionError(
          absl::StrCat(message, "; it is not a Stagewright store or is damaged"));
    case SQLITE_CORRUPT:
      return absl::FailedPreconditionError(absl::StrCat(
          message, "; it is damaged: `stagewright-planner state repair` saves what can be read"));
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

void BindBlob(sqlite3_stmt* statement, int index, absl::string_view bytes) {
  // A null pointer would bind NULL instead of no bytes.
  sqlite3_bind_blob64(statement, index, bytes.data() == nullptr ? "" : bytes.data(), bytes.size(),
                      SQLITE_TRANSIENT);
}

std::string ColumnBytes(sqlite3_stmt* statement, int column) {
  const void* bytes = sqlite3_column_blob(statement, column);
  const auto size = static_cast<size_t>(sqlite3_column_bytes(statement, column));
  return bytes == nullptr ? std::string() : std::string(static_cast<const char*>(bytes), size);
}

}  // namespace stagewright
