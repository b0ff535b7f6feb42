// Whether the indices of a program are in range.
#pragma once

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/program/program.h"

namespace stagewright {

// INVALID_ARGUMENT, naming the field, unless every stage, channel, reduction, device and action
// index of the program is in range: enough to index with them and to make a Cursor. For programs
// that come from outside. O(actions).
absl::Status CheckIds(const Program& program);

// The same, and: every node, value and parameter that the program names is in the graph. Enough to
// look them up there. O(actions + nodes).
absl::Status CheckIds(const Graph& graph, const Program& program);

}  // namespace stagewright
