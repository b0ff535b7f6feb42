// Which operators of a graph are cut in parallel parts, and in how many (common/rewrite).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace stagewright {

struct OperatorSplit {
  std::string node;   // Name of the node, in the graph as it was before.
  int32_t parts = 2;  // At least 2.
  friend bool operator==(const OperatorSplit&, const OperatorSplit&) = default;
};

// The form of the command line: "NAME=PARTS[,NAME=PARTS...]". A name may have any characters but a
// comma; the last '=' ends it. INVALID_ARGUMENT names the item that is wrong or given twice.
absl::StatusOr<std::vector<OperatorSplit>> ParseOperatorSplits(std::string_view text);

std::string OperatorSplitsText(const std::vector<OperatorSplit>& splits);

}  // namespace stagewright
