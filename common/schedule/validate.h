// Proof that a program can run, before anything runs it.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/schedule/program.h"

namespace stagewright {

// INVALID_ARGUMENT, naming the field, unless every stage, channel, reduction, device and action
// index of the program is in range: enough to index with them and to make a Cursor. For programs
// that come from outside. O(actions).
absl::Status CheckIds(const Program& program);

// The same, and: every node, value and parameter that the program names is in the graph. Enough to
// look them up there. O(actions + nodes).
absl::Status CheckIds(const Graph& graph, const Program& program);

// FAILED_PRECONDITION unless: every index is in range; every sample is forwarded, and where the
// stage has a backward pass backwarded, exactly once per stage, forwards and backwards in sample
// order and a forward before its backward (C4); sends and receives match in order per channel,
// every forward and backward waits for all it reads and every send for what it sends; all-reduces
// and optimizer steps come once and after the gradients they use; memory is never negative and
// returns to zero; running all cursors with instantaneous work ends (no deadlock); and each
// device's peak stays within `memory_budget[device id]` (empty: no limit). The message names
// device, action and rule, with the grid of the program around the offending cell. Of an
// asynchronous program all this is asked of its unrolled forms of one to three steps, with an
// update after every backward pass. O(actions log actions).
absl::Status Validate(const Program& program, const std::vector<Bytes>& memory_budget);

// The peak memory of a device's program, resident bytes included, when compute and transfers take
// no time.
Bytes PeakMemory(const DeviceProgram& program);

// One line per device, compute actions in order. With a marked cell (row in Program::devices, index
// in its body) only the columns around it, and the cell itself, also if it is a transfer, in angle
// brackets.
std::string Grid(const Program& program, int32_t marked_row = -1, int32_t marked_action = -1);

// A text form of the whole program that round-trips; golden files, logs and bug reports use it (see
// README.md). ParseProgram: INVALID_ARGUMENT names the line; indices are not checked.
std::string ToText(const Program& program);
absl::StatusOr<Program> ParseProgram(const std::string& text);

}  // namespace stagewright
