#include "planner_service/evaluator/explain.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner_service/evaluator/evaluator.h"
#include "planner_service/evaluator/what_if.h"

namespace stagewright {
namespace {

constexpr double kNoTime = 1e12;  // Times any rate: no transfer takes a nanosecond.

class Explainer {
 public:
  Explainer(const Graph& graph, const OperatorGraph& operators, const Cluster& cluster,
            const CostModel& costs, const Strategy& strategy, const ExplainOptions& options)
      : graph_(graph),
        operators_(operators),
        cluster_(cluster),
        costs_(costs),
        strategy_(strategy),
        options_(options) {}

  absl::StatusOr<Explanation> Run() {
    EvaluateOptions evaluate;
    evaluate.optimizer = options_.optimizer;
    ASSIGN_OR_RETURN(const Evaluation now, Evaluate(graph_, cluster_, costs_, strategy_, evaluate));
    result_.step_time = now.iteration_time;
    FindBottleneck(now);
    SplitTime(now);
    TryCuts();
    TryLevers();
    return std::move(result_);
  }

 private:
  bool Expired() const { return options_.expired && options_.expired(); }
  bool OutOfTrials() const { return trials_ >= options_.most_trials || Expired(); }

  absl::StatusOr<Nanos> Time(const Cluster& cluster, const CostModel& costs,
                             const Strategy& strategy) const {
    if (Expired()) return absl::CancelledError("there was no time to judge it");
    EvaluateOptions evaluate;
    evaluate.optimizer = options_.optimizer;
    ASSIGN_OR_RETURN(const Evaluation evaluation,
                     Evaluate(graph_, cluster, costs, strategy, evaluate));
    return evaluation.iteration_time;
  }

  static WhatIf Judged(std::string change, const absl::StatusOr<Nanos>& time) {
    WhatIf what{std::move(change), std::nullopt, ""};
    if (time.ok()) {
      what.step_time = *time;
    } else {
      // Without the grid of waiting devices that a deadlock comes with.
      const std::string reason(time.status().message());
      what.reason = reason.substr(0, reason.find('\n'));
    }
    return what;
  }

  void FindBottleneck(const Evaluation& now) {
    Nanos most = -1;
    DeviceId busiest(0);
    for (const DeviceUse& use : now.devices) {
      if (use.busy <= most) continue;
      most = use.busy;
      busiest = use.device;
    }
    result_.bottleneck_device = cluster_.device(busiest).name;
    result_.compute = std::max<Nanos>(most, 0);
    Nanos longest = -1;
    for (size_t s = 0; s < strategy_.stages.size(); ++s) {
      const Stage& stage = strategy_.stages[s];
      const auto& devices = stage.devices;
      if (std::find(devices.begin(), devices.end(), busiest) == devices.end()) continue;
      const Nanos work =
          now.stages[s].compute_per_micro_batch * (strategy_.mini_batch / stage.micro_batch);
      if (work <= longest) continue;
      longest = work;
      result_.bottleneck = StageId(static_cast<int64_t>(s));
    }
  }

  void SplitTime(const Evaluation& now) {
    const Nanos total = now.iteration_time;
    const auto without_links = Time(WithLinks(cluster_, kNoTime, 0), costs_, strategy_);
    result_.links =
        std::clamp<Nanos>(total - without_links.value_or(total), 0, total - result_.compute);
    const Nanos waiting = total - result_.compute - result_.links;
    const auto without_memory =
        Time(WithMemory(cluster_, 1e18), costs_, Unconstrained(graph_, strategy_));
    result_.memory = std::clamp<Nanos>(total - without_memory.value_or(total), 0, total);
    if (result_.memory > waiting) {
      // Recomputation counts as compute of the busiest device; what memory forces is memory's.
      result_.compute = std::max<Nanos>(total - result_.links - result_.memory, 0);
      result_.memory = total - result_.links - result_.compute;
    }
    result_.bubble = total - result_.compute - result_.links - result_.memory;
    const std::pair<Nanos, Binding> parts[] = {{result_.compute, Binding::kCompute},
                                               {result_.links, Binding::kLinks},
                                               {result_.memory, Binding::kMemory},
                                               {result_.bubble, Binding::kBubble}};
    result_.binding =
        std::max_element(std::begin(parts), std::end(parts), [](const auto& a, const auto& b) {
          return a.first < b.first;
        })->second;
  }

  std::vector<int32_t> StageOfOperators() const {
    const std::vector<StageId> owner = StageOwners(graph_, strategy_.stages);
    std::vector<int32_t> stage(operators_.size(), -1);
    for (int32_t o = 0; o < operators_.size(); ++o) {
      const StageId mine = owner[operators_.op(OperatorId(o)).nodes.front().index()];
      if (mine.valid()) stage[o] = mine.value();
    }
    return stage;
  }

  // Operators of `from` that border on `to` and on nothing else of `from` on that side; none if
  // `from` would be left without any.
  std::vector<OperatorId> Movable(const std::vector<int32_t>& stage, int32_t from, int32_t to,
                                  bool forward) const {
    std::vector<OperatorId> result;
    if (std::count(stage.begin(), stage.end(), from) == 1) return result;
    for (int32_t o = 0; o < operators_.size(); ++o) {
      if (stage[o] != from) continue;
      bool borders = false, inside = false;
      for (int32_t w :
           forward ? operators_.dag().Successors(o) : operators_.dag().Predecessors(o)) {
        borders = borders || stage[w] == to;
        inside = inside || stage[w] == from;
      }
      if (borders && !inside) result.push_back(OperatorId(o));
    }
    return result;
  }

  // "node7 (b0_layer3)" of an imported operator; other names have their module in them.
  std::string NameOf(OperatorId op) const {
    const Operator& moved = operators_.op(op);
    const Node& node = graph_.node(moved.nodes.front());
    if (!node.cost.has_value() || node.module.empty() || node.module == moved.name)
      return moved.name;
    return absl::StrCat(moved.name, " (", node.module, ")");
  }

  // Moves each of the operators on its own and keeps the best.
  WhatIf TryMoves(const std::vector<OperatorId>& movable, int32_t from, int32_t to) {
    WhatIf best;
    if (movable.empty())
      best.reason = absl::StrCat("no operator of stage ", from, " can move to stage ", to);
    for (OperatorId op : movable) {
      if (OutOfTrials()) {
        if (!best.step_time) best.reason = "there was no time to judge it";
        break;
      }
      ++trials_;
      const std::string change = absl::StrCat(NameOf(op), " to stage ", to);
      auto moved = MoveOperator(graph_, operators_, strategy_, op, StageId(to));
      WhatIf what = Judged(change, moved.ok() ? Time(cluster_, costs_, *moved)
                                              : absl::StatusOr<Nanos>(moved.status()));
      const bool better = what.step_time && (!best.step_time || *what.step_time < *best.step_time);
      if (better || best.change.empty()) best = std::move(what);
    }
    return best;
  }

  void TryCuts() {
    const std::vector<int32_t> stage = StageOfOperators();
    for (const StageEdge& edge : DataEdges(graph_, strategy_.stages)) {
      const int32_t from = edge.from.value(), to = edge.to.value();
      const std::vector<OperatorId> given = Movable(stage, from, to, /*forward=*/true);
      const std::vector<OperatorId> taken = Movable(stage, to, from, /*forward=*/false);
      if (given.empty() && taken.empty()) continue;
      if (OutOfTrials()) {
        ++result_.cuts_left_out;
        continue;
      }
      CutReport report{edge.from, edge.to, {}, {}};
      report.smaller = TryMoves(given, from, to);
      report.larger = TryMoves(taken, to, from);
      result_.cuts.push_back(std::move(report));
    }
  }

  void TryLevers() {
    std::vector<WhatIf>& levers = result_.levers;
    levers.push_back(
        Judged("links twice as fast", Time(WithLinks(cluster_, 2, 1), costs_, strategy_)));
    levers.push_back(
        Judged("half the latency", Time(WithLinks(cluster_, 1, 0.5), costs_, strategy_)));
    levers.push_back(
        Judged("devices twice as fast", Time(cluster_, *TwiceAsFast(costs_), strategy_)));
    levers.push_back(Judged("twice as many devices, each stage on twice its own", TimeDoubled()));
    levers.push_back(Judged("twice the memory", Time(WithMemory(cluster_, 2), costs_,
                                                     Unconstrained(graph_, strategy_))));
    const auto half = HalfMicroBatches(strategy_);
    levers.push_back(
        Judged("micro-batches half as large",
               half.ok() ? Time(cluster_, costs_, *half) : absl::StatusOr<Nanos>(half.status())));
    const bool replicated =
        std::any_of(strategy_.stages.begin(), strategy_.stages.end(),
                    [](const Stage& stage) { return stage.devices.size() > 1; });
    if (replicated && !strategy_.asynchronous) {
      Strategy other = strategy_;
      const bool shared = strategy_.optimizer_sharding != OptimizerSharding::kNone;
      other.optimizer_sharding = shared ? OptimizerSharding::kNone : OptimizerSharding::kStates;
      levers.push_back(Judged(shared ? "all of the optimizer's state on every replica"
                                     : "the optimizer's state shared out by replicas",
                              Time(cluster_, costs_, other)));
    }
    std::stable_sort(levers.begin(), levers.end(), [](const WhatIf& a, const WhatIf& b) {
      if (a.step_time.has_value() != b.step_time.has_value()) return a.step_time.has_value();
      return a.step_time && *a.step_time < *b.step_time;
    });
  }

  absl::StatusOr<Nanos> TimeDoubled() const {
    ASSIGN_OR_RETURN(const Strategy doubled, OnDoubled(strategy_, cluster_.size()));
    ASSIGN_OR_RETURN(const Cluster twice, Doubled(cluster_));
    return Time(twice, costs_, doubled);
  }

  const Graph& graph_;
  const OperatorGraph& operators_;
  const Cluster& cluster_;
  const CostModel& costs_;
  const Strategy& strategy_;
  const ExplainOptions& options_;
  Explanation result_;
  int32_t trials_ = 0;
};

std::string Percent(Nanos part, Nanos whole) {
  if (whole <= 0) return "0 %";
  return absl::StrFormat("%.1f %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string CutText(const WhatIf& what, Nanos now) {
  if (!what.step_time) return absl::StrCat(what.change, ": not valid, ", what.reason);
  const double change =
      now > 0 ? 100.0 * static_cast<double>(*what.step_time - now) / static_cast<double>(now) : 0;
  return absl::StrCat(what.change, ": ", FormatDuration(*what.step_time),
                      absl::StrFormat(" (%+.1f %%)", change));
}

}  // namespace

const char* BindingName(Binding binding) {
  switch (binding) {
    case Binding::kCompute:
      return "compute";
    case Binding::kLinks:
      return "links";
    case Binding::kMemory:
      return "memory";
    case Binding::kBubble:
      return "bubble";
  }
  return "unknown";
}

absl::StatusOr<Explanation> Explain(const Graph& graph, const OperatorGraph& operators,
                                    const Cluster& cluster, const CostModel& costs,
                                    const Strategy& strategy, const ExplainOptions& options) {
  return Explainer(graph, operators, cluster, costs, strategy, options).Run();
}

std::string ToText(const Explanation& explanation) {
  const Nanos total = explanation.step_time;
  const auto part = [&](const char* name, Nanos time) {
    return absl::StrCat(name, " ", FormatDuration(time), " (", Percent(time, total), ")");
  };
  std::string out = absl::StrCat(
      "a step takes ", FormatDuration(total), ": ", part("compute", explanation.compute), ", ",
      part("links", explanation.links), ", ", part("memory", explanation.memory), ", ",
      part("bubble", explanation.bubble));
  absl::StrAppend(&out, "\n", BindingName(explanation.binding), " binds; the bottleneck is stage ",
                  explanation.bottleneck.value(), " on ", explanation.bottleneck_device,
                  "\n\ncuts, one operator moved\n");
  for (const CutReport& cut : explanation.cuts) {
    absl::StrAppend(&out, "  [", cut.from.value(), "] -> [", cut.to.value(), "]\n");
    for (const WhatIf* what : {&cut.smaller, &cut.larger}) {
      if (!what->change.empty()) absl::StrAppend(&out, "    ", CutText(*what, total), "\n");
    }
  }
  if (explanation.cuts.empty()) absl::StrAppend(&out, "  none can move\n");
  if (explanation.cuts_left_out > 0)
    absl::StrAppend(&out, "  and ", explanation.cuts_left_out, " not judged\n");
  absl::StrAppend(&out, "\nwhat would help\n");
  for (const WhatIf& lever : explanation.levers) {
    if (!lever.step_time) {
      absl::StrAppend(&out, "     -    ", lever.change, ": ", lever.reason, "\n");
      continue;
    }
    const double ratio = *lever.step_time > 0
                             ? static_cast<double>(total) / static_cast<double>(*lever.step_time)
                             : 1;
    absl::StrAppend(&out, absl::StrFormat("  %5.2fx   ", ratio), lever.change, "\n");
  }
  return out;
}

}  // namespace stagewright
