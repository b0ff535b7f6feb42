// What can still be read of a damaged SQLite store.
#pragma once

#include <string>

#include "common/base/status.h"

namespace stagewright {

// Makes a store at `to`, where nothing may be, of all entries of `from` that can be read; those
// that are not as they were written come along as they are. How many all are. Entries on damaged
// pages are lost. Errors of MakeWholeFile; FAILED_PRECONDITION if nothing is found.
absl::StatusOr<int> SalvageStoreFile(const std::string& from, const std::string& to);

}  // namespace stagewright
