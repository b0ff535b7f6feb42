// A plan for samples of several lengths: its strategy is found for the largest and judged for each.
#pragma once

#include <functional>

#include "common/base/status.h"
#include "planner_service/front_door/front_door.h"

namespace stagewright {

// Adds to a judged plan what its strategy does with the samples of PlanRequest::lengths. A device
// keeps the message buffers of all its programs (common/memory/message_buffers.h), so each counts
// those of the others as resident. Errors as Evaluate's, naming the samples; FAILED_PRECONDITION
// for an asynchronous strategy, whose passes of several steps run beside each other;
// RESOURCE_EXHAUSTED if a device has no memory for the buffers. `stop` as EvaluateOptions'.
absl::Status JudgeLengths(const PlanRequest& request, JudgedPlan& judged,
                          const std::function<bool()>& stop = {});

// Adds to each program, of the graph beside it, the message buffers of the others, by device.
void HoldBuffersOfAll(const std::vector<const Graph*>& graphs, Precision precision,
                      const std::vector<Program*>& programs);

}  // namespace stagewright
