// Drafts in which the parts of a model are packed on the devices by size.
//
// Where there are about as many parts as devices, and few of them are what a device should do,
// neither groups of devices nor devices of its own suit each part. Here runs of operators are cut
// in pieces of at most a share of what a device should do, and the pieces, the longest first, each
// go to the device with least to do (longest processing time first, Graham 1969). One that is too
// long for it has as many replicas as it takes to fit.
#pragma once

#include <cstdint>
#include <optional>

#include "common/graph/series_parallel.h"
#include "planner_service/models/draft.h"
#include "planner_service/models/operator_costs.h"

namespace stagewright {

// Shares of what each device would do if all did as much.
struct Packing {
  double longest = 1;    // Piece of several operators.
  double slack = 0;      // What a device may do beyond its share before a piece has replicas.
  int32_t replicas = 1;  // At most; 1 or more.
};

// The draft for this size of micro-batches; nothing where devices have more than a few pieces each.
// May be too large for the memory. Its stages are not sorted, and may have a cycle.
// O(operators + pieces * devices log devices).
std::optional<Draft> DraftOnPackedDevices(const OperatorCosts& costs, const SpTree& tree,
                                          int64_t micro_batch, const Packing& packing);

}  // namespace stagewright
