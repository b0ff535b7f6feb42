#include "planner_service/models/draft.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/strategy/in_flight.h"
#include "common/strategy/stage_edges.h"
#include "planner_service/models/stage_maker.h"

namespace stagewright {
namespace {

// "0-3,7".
std::string Runs(const std::vector<int32_t>& items) {
  std::string text;
  for (size_t i = 0; i < items.size();) {
    size_t end = i + 1;
    while (end < items.size() && items[end] == items[end - 1] + 1) ++end;
    absl::StrAppend(&text, text.empty() ? "" : ",", items[i]);
    if (end > i + 1) absl::StrAppend(&text, "-", items[end - 1]);
    i = end;
  }
  return text;
}

std::vector<int32_t> StageOfOperator(const Draft& draft, int32_t operators) {
  std::vector<int32_t> stage(operators, -1);
  for (size_t s = 0; s < draft.stages.size(); ++s) {
    for (int32_t op : draft.stages[s].operators) stage[op] = static_cast<int32_t>(s);
  }
  return stage;
}

bool InOrder(const Dag& operators, const std::vector<int32_t>& stage) {
  for (int32_t v = 0; v < operators.size(); ++v) {
    for (int32_t w : operators.Successors(v)) {
      if (stage[v] > stage[w]) return false;
    }
  }
  return true;
}

// Stages in topological order, smallest first operator first; short if there is a cycle.
std::vector<int32_t> TopologicalOrder(const Dag& operators, const Draft& draft,
                                      const std::vector<int32_t>& stage) {
  const size_t n = draft.stages.size();
  std::vector<std::vector<int32_t>> next(n);
  std::vector<int32_t> missing(n, 0);
  for (int32_t v = 0; v < operators.size(); ++v) {
    for (int32_t w : operators.Successors(v)) {
      if (stage[v] != stage[w]) next[stage[v]].push_back(stage[w]);
    }
  }
  for (auto& row : next) {
    std::sort(row.begin(), row.end());
    row.erase(std::unique(row.begin(), row.end()), row.end());
    for (int32_t s : row) ++missing[s];
  }
  using Entry = std::pair<int32_t, int32_t>;  // (first operator, stage)
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  const auto push = [&](int32_t s) { ready.emplace(draft.stages[s].operators.front(), s); };
  for (size_t s = 0; s < n; ++s) {
    if (missing[s] == 0) push(static_cast<int32_t>(s));
  }
  std::vector<int32_t> order;
  while (!ready.empty()) {
    const int32_t s = ready.top().second;
    ready.pop();
    order.push_back(s);
    for (int32_t t : next[s]) {
      if (--missing[t] == 0) push(t);
    }
  }
  return order;
}

}  // namespace

std::string ToString(const Draft& draft) {
  std::string text =
      absl::StrCat(draft.kind == StrategyKind::kGraph ? "g" : "s", " b", draft.micro_batch);
  for (const DraftStage& stage : draft.stages) {
    std::string devices;
    for (int32_t d : stage.devices) absl::StrAppend(&devices, devices.empty() ? "" : ",", d);
    absl::StrAppend(&text, " | ", Runs(stage.operators), "@", devices, stage.recompute ? "r" : "");
  }
  return text;
}

bool SortStages(const Dag& operators, Draft& draft) {
  const std::vector<int32_t> stage = StageOfOperator(draft, operators.size());
  if (draft.kind == StrategyKind::kSequential) return InOrder(operators, stage);
  const std::vector<int32_t> order = TopologicalOrder(operators, draft, stage);
  if (order.size() < draft.stages.size()) return false;
  std::vector<DraftStage> sorted;
  sorted.reserve(order.size());
  for (int32_t s : order) sorted.push_back(std::move(draft.stages[s]));
  draft.stages = std::move(sorted);
  return true;
}

Strategy ToStrategy(const Problem& problem, const Draft& draft) {
  const StageMaker maker(problem);
  Strategy strategy = EmptyStrategy(problem, draft.kind);
  for (const DraftStage& planned : draft.stages) {
    Stage stage =
        maker.Make(std::vector<OperatorId>(planned.operators.begin(), planned.operators.end()));
    stage.micro_batch = draft.micro_batch;
    for (int32_t d : planned.devices) stage.devices.push_back(DeviceId(d));
    stage.recompute = planned.recompute;
    strategy.stages.push_back(std::move(stage));
  }
  strategy.edges = StageEdges(*problem.graph, strategy.kind, strategy.stages);
  AssignInFlight(strategy);
  return strategy;
}

std::optional<Draft> ToDraft(const Problem& problem, const Strategy& strategy) {
  Draft draft;
  draft.kind = strategy.kind;
  if (strategy.stages.empty() || strategy.asynchronous) return std::nullopt;
  draft.micro_batch = strategy.stages.front().micro_batch;
  size_t nodes = 0;
  for (const Stage& stage : strategy.stages) {
    if (stage.micro_batch != draft.micro_batch) return std::nullopt;
    DraftStage& planned = draft.stages.emplace_back();
    for (NodeId node : stage.nodes) {
      const OperatorId owner = problem.operators->owner(node);
      if (!owner.valid()) return std::nullopt;
      planned.operators.push_back(owner.value());
    }
    std::sort(planned.operators.begin(), planned.operators.end());
    planned.operators.erase(std::unique(planned.operators.begin(), planned.operators.end()),
                            planned.operators.end());
    for (int32_t op : planned.operators) {
      nodes += problem.operators->op(OperatorId(op)).nodes.size();
    }
    nodes -= stage.nodes.size();
    for (DeviceId device : stage.devices) planned.devices.push_back(device.value());
    planned.recompute = stage.recompute;
  }
  if (nodes != 0) return std::nullopt;  // An operator is cut.
  return draft;
}

}  // namespace stagewright
