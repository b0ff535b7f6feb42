// What of a parameter each replica of a stage has the optimizer's state of, and updates, where
// replicas share that out (Reduction::sharded): of every parameter, in elements of its row-major
// order, as many equally large shares as the reduction has devices, of which the last may be
// smaller or empty. The i-th device has the i-th. So shares depend neither on the buckets in which
// gradients are summed nor on what else is in the stage.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "common/graph/graph.h"
#include "common/program/program.h"

namespace stagewright {

// Elements of a parameter from `begin` to before `end`.
struct ParameterRange {
  ParameterId id;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const ParameterRange&, const ParameterRange&) = default;
};

// Elements of a share, the last ones apart.
int64_t ShareSize(int64_t elements, int64_t devices);

// What the device has of each parameter of a sharded reduction, by id; empty ranges where it has
// nothing. REQUIRES: the device is in the reduction. O(n).
std::vector<ParameterRange> SharesOf(const Graph& graph, const Reduction& reduction,
                                     DeviceId device);

// The same of all sharded reductions that the device is in, by id. O(n log n).
std::vector<ParameterRange> SharesOn(const Graph& graph, const Program& program, DeviceId device);

}  // namespace stagewright
