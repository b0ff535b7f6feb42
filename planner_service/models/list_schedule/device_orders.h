// What follows from the passes of a list schedule: the end of the step with all-reduces and
// updates, and the compute orders of a strategy.
#pragma once

#include <span>
#include <vector>

#include "common/base/units.h"
#include "planner_service/models/list_schedule/due_dates.h"
#include "planner_service/models/list_schedule/task_graph.h"

namespace stagewright {

// From the first pass to the last update, ns. O(passes + stages * devices).
Nanos StepEnd(const TaskGraph& graph, std::span<const TimedPass> passes);

// For Strategy::orders. `passes` are in the order in which they started. A stage's backward passes
// are all whole or all split: whole if that delays nobody. O(passes + links * micro-batches).
std::vector<DeviceOrder> OrdersOf(const TaskGraph& graph, std::span<const TimedPass> passes);

}  // namespace stagewright
