// A store in one file.
#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"
#include "planner_service/store/store.h"

namespace stagewright {

// One file, crash-safe (SQLite, write-ahead log, synchronous=FULL). Made if absent; ":memory:"
// keeps nothing. FAILED_PRECONDITION if the file is no store or is held by another process.
absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path);

}  // namespace stagewright
