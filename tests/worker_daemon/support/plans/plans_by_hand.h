// Plans that cut a graph at chosen nodes.
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/graph.h"
#include "common/strategy/strategy.h"

namespace stagewright::testing {

// The nodes after those of the stage before it, up to and including `last`.
struct HandStage {
  int last = 0;
  int64_t micro_batch = 1;
  int replicas = 1;
  bool recompute = false;
};

// Each stage on devices of its own. REQUIRES: the graph's nodes are numbered in an order in which
// they can run.
Strategy PlanByHand(const Graph& graph, int64_t mini_batch, const std::vector<HandStage>& stages);

// PlanByHand as zero-bubble H1: with split backward passes. REQUIRES: equal micro-batches.
Strategy SplitByHand(const Graph& graph, int64_t mini_batch, const std::vector<HandStage>& stages);

}  // namespace stagewright::testing
