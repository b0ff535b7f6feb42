// Whether a step of a problem can be timed at all: whatever is planned for it, no sum of times may
// leave the range of a number.
#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "common/base/units.h"
#include "common/cost/cost_model.h"
#include "common/graph/graph.h"
#include "common/topology/cluster.h"

namespace stagewright {

// What a step may take on one device, and its messages on one link: a year. A plan has less than
// the 292 such times that fit a number of nanoseconds.
inline constexpr Nanos kLongestStep = 366 * 86'400 * kSecond;

// INVALID_ARGUMENT names the kind of device on which the mini-batch, at once or sample by sample,
// takes longer than kLongestStep, with the slowest operator and what updates and fixed costs add,
// or the link on which the results of all operators, the parameters and their latencies do. O(kinds
// x nodes + links).
absl::Status CheckTimes(const Graph& graph, const Cluster& cluster, const CostModel& costs,
                        int64_t mini_batch);

}  // namespace stagewright
