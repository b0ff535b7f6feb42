#include "planner_service/models/stage_maker.h"

#include <algorithm>

namespace stagewright {

StageMaker::StageMaker(const Problem& problem)
    : problem_(problem), rank_(problem.operators->size()) {
  const std::vector<int32_t>& order = problem.operators->dag().order();
  for (size_t i = 0; i < order.size(); ++i) rank_[order[i]] = static_cast<int32_t>(i);
}

Stage StageMaker::Make(std::span<const OperatorId> operators) const {
  std::vector<OperatorId> ordered(operators.begin(), operators.end());
  std::sort(ordered.begin(), ordered.end(),
            [&](OperatorId a, OperatorId b) { return rank_[a.index()] < rank_[b.index()]; });
  Stage stage;
  for (OperatorId op : ordered) {
    const std::vector<NodeId>& nodes = problem_.operators->op(op).nodes;
    stage.nodes.insert(stage.nodes.end(), nodes.begin(), nodes.end());
  }
  stage.replicated = ReplicatedInto(*problem_.graph, *problem_.operators, stage.nodes);
  return stage;
}

}  // namespace stagewright
