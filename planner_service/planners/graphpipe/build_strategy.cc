#include "planner_service/planners/graphpipe/build_strategy.h"

#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner_service/models/stage_maker.h"

namespace stagewright {

Strategy BuildStrategy(const StageOracle& oracle, const Partition& partition, const Layout& layout,
                       StrategyKind kind) {
  const Problem& problem = oracle.problem();
  const StageMaker maker(problem);
  const std::span<const OperatorId> order = oracle.order();
  Strategy strategy = EmptyStrategy(problem, kind);
  for (size_t s = 0; s < partition.stages.size(); ++s) {
    const StageChoice& choice = partition.stages[s];
    Stage stage = maker.Make(order.subspan(choice.begin, choice.end - choice.begin));
    stage.micro_batch = choice.config.micro_batch;
    stage.devices = layout.devices[s];
    stage.schedule = {layout.in_flight[s], choice.config.k};
    stage.recompute = choice.recompute;
    strategy.stages.push_back(std::move(stage));
  }
  for (const Layout::Edge& edge : layout.edges) {
    strategy.edges.push_back({StageId(edge.from), StageId(edge.to)});
  }
  return strategy;
}

std::string ToString(const Partition& partition) {
  std::string text;
  for (const StageChoice& choice : partition.stages) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", "[", choice.begin, ",", choice.end, ")x",
                    choice.replicas, choice.recompute ? "r" : "", " b", choice.config.micro_batch,
                    " k", choice.config.k, " i", choice.in_flight);
  }
  return text;
}

}  // namespace stagewright
