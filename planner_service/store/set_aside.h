// Entries that cannot be read any more. They are moved out of the way, so that they keep nobody
// from the others, and kept for whoever looks into it.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "planner_service/store/store.h"

namespace stagewright {

// The key that an entry is kept under once it is set aside.
std::string SetAsideKey(absl::string_view key);

// Moves the entry there, whatever its value is. Errors of the store; NOT_FOUND.
absl::Status SetAside(Store& store, const std::string& key);

// The keys that entries had before they were set aside, in order.
absl::StatusOr<std::vector<std::string>> KeysSetAside(const Store& store);

// Deletes what was set aside; how many entries those were.
absl::StatusOr<int> DropSetAside(Store& store);

}  // namespace stagewright
