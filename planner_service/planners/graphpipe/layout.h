// A partition on devices: what decides its iteration time, without the operators themselves.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "planner_service/planners/graphpipe/recurrence/partition_search.h"

namespace stagewright {

struct Layout {
  // What one edge of the stage graph puts on the links, in one direction.
  struct Load {
    std::vector<std::pair<int32_t, double>> links;  // Bytes per sample, by link.
    Nanos latency = 0;                              // Before the first byte moves.
  };
  struct Edge {
    int32_t from = 0;
    int32_t to = 0;
    Load there;
    Load back;
  };
  std::vector<std::vector<DeviceId>> devices;  // By stage.
  std::vector<int64_t> in_flight;              // By stage: samples.
  std::vector<Edge> edges;                     // By (from, to).

  // ns per sample of the busiest link.
  double Busiest(const Cluster& cluster) const;
};

// What the stages exchange, by (from, to): the data edges and, for a sequential strategy, the
// chain's.
std::vector<CostTable::Exchange> StageEdges(const StageOracle& oracle, const Partition& partition,
                                            StrategyKind kind);

// Stages in linear order on devices by PlaceStages, with their StageEdges. Stages with `spread`
// have their replicas on as many nodes as there are; `spread` may be empty. O(operators + edges *
// replicas).
Layout MakeLayout(const StageOracle& oracle, const Partition& partition, StrategyKind kind,
                  const std::vector<bool>& spread);

// The stages whose messages would keep a node's network port busy for longer than `period` ns per
// sample, and which have replicas to share them. Empty if there is none.
std::vector<bool> StagesToSpread(const StageOracle& oracle, const Partition& partition,
                                 double period);

}  // namespace stagewright
