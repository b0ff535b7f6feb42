// From sets of planner operators to the stages of a strategy.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner_service/planner/planner.h"

namespace stagewright {

class StageMaker {
 public:
  // The problem outlives the maker. O(operators).
  explicit StageMaker(const Problem& problem);

  // A stage of these operators, in any order, each once: their nodes, operator by operator in the
  // order of the operator graph, which is topological for the nodes, too, and the constant nodes
  // that the stage computes for itself. All else is as a Stage has it by default. O(n log n) for n
  // operators, and what ReplicatedInto() takes.
  Stage Make(std::span<const OperatorId> operators) const;

 private:
  const Problem& problem_;
  std::vector<int32_t> rank_;  // By operator: its place in their topological order.
};

}  // namespace stagewright
