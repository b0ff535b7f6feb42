// In which order a device computes.
#pragma once

#include <cstdint>
#include <vector>

#include "common/lowering/channels.h"
#include "common/program/action.h"
#include "common/program/program.h"
#include "common/strategy/strategy.h"

namespace stagewright {

// One unit of the compute lane before it becomes an action.
struct Task {
  ActionKind kind = ActionKind::kForward;  // Forward, recompute, backward or one of its halves.
  int32_t slot = 0;
  bool next_step = false;  // The slot's samples of the next step (asynchronous schedules).
  friend bool operator==(const Task&, const Task&) = default;
};

struct MicroBatchTask {
  bool backward = false;
  int64_t index = 0;  // The micro-batch's.
  friend bool operator==(const MicroBatchTask&, const MicroBatchTask&) = default;
};

// SCHEDULETASK of GraphPipe section 6 for `micro_batches` micro-batches: forwards until `in_flight`
// samples are in flight, then k backwards and k forwards in turn, then the remaining backwards.
// Only forwards without `has_backward`.
std::vector<MicroBatchTask> StageOrder(int64_t micro_batches, int64_t micro_batch,
                                       const StageSchedule& schedule, bool has_backward);

// The compute lane of every device, indexed by device id (up to the largest one used). Explicit
// orders are taken as they are; where no stage has a backward pass (evaluation), only their
// forwards. Otherwise a device with one stage keeps the order of its policy. A device with several
// follows a greedy list schedule of the whole program in unit time: a backward first, else the
// forward nearest the sink, of those whose inputs are there and, where replicas share out
// gradients, whose stage's backward passes so far have been run by all of them; each stage keeps
// its own order. Since the merged orders are those of an execution, merging cannot deadlock.
// O(tasks + pieces), and for shared devices O(time steps * stages) more.
std::vector<std::vector<Task>> DeviceOrders(const Strategy& strategy,
                                            const std::vector<ProgramStage>& stages,
                                            const Slots& slots, const Channels& channels);

// What a device of an asynchronous strategy computes (lower.h), without its updates.
struct TaskSections {
  std::vector<Task> prologue, body, epilogue;
};

// By device id, up to the largest one used. REQUIRES: one stage per device. O(tasks).
std::vector<TaskSections> AsynchronousOrders(const Strategy& strategy,
                                             const std::vector<ProgramStage>& stages,
                                             const Slots& slots);

}  // namespace stagewright
