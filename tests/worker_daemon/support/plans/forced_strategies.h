// Random strategies that no planner need find good: the engine must train the same with each.
#pragma once

#include <cstdint>
#include <random>

#include "common/graph/graph.h"
#include "common/strategy/strategy.h"

namespace stagewright::testing {

struct StrategyShape {
  int stages = 1;
  int64_t mini_batch = 16;
  int most_replicas = 1;          // Per stage; each stage has one to as many.
  bool share_devices = false;     // Several stages may run on one device.
  bool same_micro_batch = false;  // For all stages.
  int64_t micro_batches = 0;      // Per stage, at most 8; 0: random.
  StrategyKind kind = StrategyKind::kGraph;
  bool recompute = false;  // In every other stage or so.
};

// Cuts a random topological order of the graph, depth first as often as not so that stages follow
// branches, at random places where only tensors with a batch dimension cross. Has fewer stages if
// there are not enough such places.
Strategy ForceStrategy(const Graph& graph, const StrategyShape& shape, std::mt19937_64& random);

// The number of devices that the strategy uses: one more than the largest id.
int32_t DevicesOf(const Strategy& strategy);

}  // namespace stagewright::testing
