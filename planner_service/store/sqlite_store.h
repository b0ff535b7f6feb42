// A store in one file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "planner_service/store/store.h"

namespace stagewright {

// A store, and what whoever runs it should know of how it was found, a line each.
struct OpenedStore {
  std::unique_ptr<Store> store;
  std::vector<std::string> notes;
};

// One file, crash-safe (SQLite, write-ahead log, synchronous=FULL), with a checksum for each entry.
// Made if absent; ":memory:" keeps nothing. Entries that are not as they were written are set aside
// (set_aside.h). FAILED_PRECONDITION if the file is no store, is empty, is damaged beyond its
// entries, or is held by another process. Reads the file once.
absl::StatusOr<OpenedStore> OpenSqliteStore(const std::string& path);

}  // namespace stagewright
