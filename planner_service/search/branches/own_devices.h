// Drafts in which every part of a model has devices of its own.
//
// The series-parallel tree of the operators is dealt over the devices: what follows one another or
// lies side by side has devices by its share of the work, one at least, down to runs of operators,
// which are cut in slices of about equal time. So the replicas of two parts need not be alike:
// three for every branch, thirty for what joins them. What is due less than half a device has none
// of its own: between branches it shares all devices of these, beside branches it has one of
// theirs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/graph/series_parallel.h"
#include "planner_service/models/draft.h"
#include "planner_service/models/operator_costs.h"

namespace stagewright {

// So many devices, or groups of them, dealt by work: one at least for each, then one after the
// other to what has most work for each of its own, the earlier of equals. REQUIRES: `count` is no
// less than the number of works. O(count * works).
std::vector<int32_t> CountsByWork(const std::vector<double>& work, int32_t count);

// At most; 1 or more.
struct Replicas {
  int32_t of_slice = 1;   // A run of operators is cut in as many slices as that takes.
  int32_t of_shared = 1;  // What lies between branches.
};

// The draft for this size of micro-batches; nothing where there are more parts than devices. May be
// too large for the memory. Its stages are not sorted. O(operators + devices * parts).
std::optional<Draft> DraftOnOwnDevices(const OperatorCosts& costs, const SpTree& tree,
                                       int64_t micro_batch, Replicas replicas);

}  // namespace stagewright
