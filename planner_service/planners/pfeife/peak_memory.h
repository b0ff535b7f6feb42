// What the devices hold at most, given when passes run.
#pragma once

#include <vector>

#include "common/base/units.h"
#include "planner_service/planners/pfeife/dependency_graph.h"

namespace stagewright::pfeife {

// Bytes by slice.
struct SliceMemory {
  std::vector<Bytes> fixed;  // Parameters and the like, workspace, messages under way.
  std::vector<Bytes> each;   // For each micro-batch from its forward to its backward pass.
};

// Peak memory by position in the pipeline. A gradient waits at its sender until the earlier slice
// takes it. An estimate, because passes of the simulator run at other times and its receives are
// posted earlier: on chains of operators at least nine tenths of what the evaluator finds. O(p log
// p) for p passes and messages. REQUIRES: graph.LongestPath(costs) was the last call of its kind.
std::vector<Bytes> PeakMemory(const SliceMemory& memory, const DependencyGraph& graph,
                              const SliceCosts& costs);

}  // namespace stagewright::pfeife
