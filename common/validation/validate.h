// Proof that a program can run, before anything runs it.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/program/program.h"

namespace stagewright {

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
// That of each device, by row. Replicas and stages that do the same are worked out once.
// O(actions).
std::vector<Bytes> PeakMemories(const Program& program);

}  // namespace stagewright
