// The recurrence on every level of a network: what is a machine to a level is a pipeline over all
// machines of the level below.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "planner_service/planners/pipedream/recurrence.h"

namespace stagewright::pipedream {

class Partitioner {
 public:
  // Levels from the innermost outwards, at least one. Limits on memory and replicas hold on the
  // innermost, limits on stages only on a single one. Everything referenced outlives it.
  Partitioner(const States& states, StateCosts costs, const Rules& rules, std::vector<Level> levels,
              const Limits& limits, const SearchContext& context);

  // Runs the recurrence. For one level O(S^2 M^2), for each further one S times that of the level
  // below. With an expired context the answers are those of an unfinished search.
  void Run();

  // The least bottleneck on all machines, and a pipeline whose bottleneck is at most `slack` times
  // that: of those, one with the fewest stages on every level. kNever and empty if there is none.
  double bottleneck() const { return bottleneck_; }
  std::vector<PlannedStage> Stages(double slack);

  int64_t visited() const { return visited_; }

 private:
  double LinksOf(size_t level) const;
  std::vector<PlannedStage> Expand(size_t level, const std::vector<Split>& splits, double slack);

  const States& states_;
  const Rules& rules_;
  const Limits& limits_;
  const SearchContext& context_;
  std::vector<Level> levels_;
  std::vector<Limits> level_limits_;
  std::vector<StateCosts> costs_;  // By level.
  std::unique_ptr<Recurrence> outermost_;
  double bottleneck_ = Recurrence::kNever;
  int64_t visited_ = 0;
};

}  // namespace stagewright::pipedream
