// A planning problem as a chain of layers for DAPPLE's search.
#pragma once

#include <cstdint>
#include <vector>

#include "planner_service/models/stage_oracle.h"
#include "planner_service/planners/dapple/search.h"

namespace stagewright::dapple {

// The published chain: costs of `samples` samples, nodes in `order`. REQUIRES: every node of
// `graph` has a profiled cost.
ChainCosts ProfiledChain(const Graph& graph, const std::vector<int32_t>& order, double samples);

class Chain {
 public:
  // The oracle, whose order is the chain's, outlives it. Neighbouring layers are joined until there
  // are at most `most_cuts` cuts.
  Chain(const StageOracle& oracle, int32_t most_cuts);

  // For micro-batches of `samples` samples on up to `devices` devices.
  ChainCosts CostsOf(int64_t samples, int32_t devices) const;
  // The oracle's position of a cut.
  int32_t Position(int32_t cut) const { return cuts_[cut]; }

 private:
  const StageOracle& oracle_;
  std::vector<int32_t> cuts_;       // Positions, from 0 to the number of layers.
  std::vector<double> boundary_;    // Bytes per sample over each cut.
  std::vector<double> parameters_;  // Gradient bytes before each cut.
};

}  // namespace stagewright::dapple
