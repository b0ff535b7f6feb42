// The search for the partition with the least objective (objective.h).
#pragma once

#include <cstdint>
#include <optional>

#include "common/graph/downsets.h"
#include "planner_service/planner/planner.h"
#include "planner_service/planners/piper/objective.h"

namespace stagewright {

struct PiperLimits {
  // With more downsets than this the lattice is not searched, only topological orders of the graph.
  int64_t downsets = 40'000;
  int32_t min_stages = 0;
  int32_t max_stages = 0;     // 0: any number.
  int32_t most_replicas = 0;  // 0: any number.
};

struct PiperAnswer {
  // Stages in topological order; nullopt if none fits, or the context expired before one was found.
  std::optional<PiperPartition> partition;
  double objective = 0;
  bool lattice = false;  // All downsets were searched: no partition has a lower objective.
  bool expired = false;
  int64_t states = 0;  // Pairs of downsets whose stage was priced.
};

// The relative precision of the objective.
inline constexpr double kPiperPrecision = 1e-7;

// The problem, notation, recurrence and complexity are stated in solve.cc.
PiperAnswer SolvePiper(const PiperProblem& problem, const PiperLimits& limits,
                       const SearchContext& context);

}  // namespace stagewright
