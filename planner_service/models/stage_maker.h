// From sets of planner operators to the stages of a strategy.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner_service/planner/planner.h"

namespace stagewright {

class StageMaker {
 public:
  // The problem outlives the maker. O(nodes).
  explicit StageMaker(const Problem& problem);

  // A stage of these operators, in any order, each once: their nodes in topological order and the
  // constant nodes that the stage computes for itself. All else is as a Stage has it by default.
  // O(n log n) for n nodes, and what ReplicatedInto() takes.
  Stage Make(std::span<const OperatorId> operators) const;

 private:
  const Problem& problem_;
  std::vector<int32_t> rank_;  // By node: its place in the graph's topological order.
};

}  // namespace stagewright
