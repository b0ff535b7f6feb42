#include "planner_service/planners/auto/incumbents.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "common/strategy/orders.h"
#include "planner_service/planners/auto/effort.h"

namespace stagewright {
namespace {

// The effort of judging what recomputes less (EffortOfJudging).
constexpr int64_t kRecomputationEffort = 600'000;

// A strategy of one stage is a pipeline of either kind.
bool IsSequential(const Strategy& strategy) {
  return strategy.kind == StrategyKind::kSequential || strategy.stages.size() == 1;
}

bool UsesSeveralDevices(const Strategy& strategy) {
  std::set<DeviceId> used;
  for (const Stage& stage : strategy.stages)
    used.insert(stage.devices.begin(), stage.devices.end());
  return used.size() > 1;
}

// Without recomputation in the stages [first, last).
Strategy WithoutRecomputation(const Graph& graph, Strategy strategy, size_t first, size_t last) {
  for (size_t s = first; s < last; ++s) strategy.stages[s].recompute = false;
  if (strategy.orders.empty()) return strategy;
  std::vector<DeviceOrder> orders = std::move(strategy.orders);
  for (DeviceOrder& order : orders) {
    std::erase_if(order.steps, [&](const ComputeStep& step) {
      return step.pass == Pass::kRecompute && !strategy.stages[step.stage.index()].recompute;
    });
  }
  SetOrders(graph, std::move(orders), strategy);
  return strategy;
}

int64_t Recomputing(const Strategy& strategy) {
  return std::count_if(strategy.stages.begin(), strategy.stages.end(),
                       [](const Stage& stage) { return stage.recompute; });
}

}  // namespace

Incumbents::Incumbents(const Problem& problem, const PlanOptions& options, SearchContext& context)
    : problem_(problem), options_(options), context_(context) {}

absl::StatusOr<Verdict> Incumbents::Judge(const Strategy& strategy) {
  ++judged_;
  context_.Spend(WorkOfJudging(strategy));
  // Without an answer, the first one is worth a late end.
  std::function<bool()> stop;
  if (best_.has_value()) stop = [this] { return context_.Expired(); };
  ASSIGN_OR_RETURN(Verdict verdict, SearchVerdictOn(problem_, strategy, std::move(stop)));
  if (!verdict.rejection.ok()) rejection_ = verdict.rejection;
  return verdict;
}

absl::StatusOr<Verdict> Incumbents::Consider(const Strategy& strategy,
                                             std::optional<Verdict> known) {
  Verdict verdict;
  if (known.has_value()) {
    verdict = *std::move(known);
  } else {
    ASSIGN_OR_RETURN(verdict, Judge(strategy));
  }
  if (!verdict.time.has_value()) return verdict;
  const Nanos time = *verdict.time;
  accepted_.push_back(strategy);
  if (UsesSeveralDevices(strategy)) several_time_ = std::min(time, several_time_.value_or(time));
  const bool sequential = IsSequential(strategy);
  if (sequential && (!sequential_.has_value() || time < sequential_time_)) {
    sequential_ = strategy;
    sequential_->kind = StrategyKind::kSequential;
    sequential_time_ = time;
  }
  if (options_.sequential && !sequential) return verdict;
  if (best_.has_value() && time >= best_time_) return verdict;
  best_ = options_.sequential ? *sequential_ : strategy;
  best_time_ = time;
  if (context_.on_improvement) context_.on_improvement(*best_);
  return verdict;
}

absl::Status Incumbents::DropIdleRecomputation() {
  if (options_.recompute == RecomputePolicy::kAlways) return absl::OkStatus();
  const SearchContext effort(context_, WithEffort(options_, kRecomputationEffort));
  const auto drop = [&](std::optional<Strategy>& incumbent, Nanos& time, size_t first,
                        size_t last) -> absl::Status {
    const Strategy less = WithoutRecomputation(*problem_.graph, *incumbent, first, last);
    effort.Charge(EffortOfJudging(less));
    ASSIGN_OR_RETURN(const Verdict verdict, Judge(less));
    const std::optional<Nanos> now = verdict.time;
    if (!now.has_value() || *now > time) return absl::OkStatus();
    const bool faster = *now < time;
    incumbent = less;
    time = *now;
    if (faster && &incumbent == &best_ && context_.on_improvement) context_.on_improvement(*best_);
    return absl::OkStatus();
  };
  for (const bool of_all : {true, false}) {
    std::optional<Strategy>& incumbent = of_all ? best_ : sequential_;
    Nanos& time = of_all ? best_time_ : sequential_time_;
    if (!incumbent.has_value()) continue;
    const size_t stages = incumbent->stages.size();
    if (Recomputing(*incumbent) > 1 && !effort.Expired()) {
      RETURN_IF_ERROR(drop(incumbent, time, 0, stages));
    }
    for (size_t s = 0; s < stages; ++s) {
      if (!incumbent->stages[s].recompute || effort.Expired()) continue;
      RETURN_IF_ERROR(drop(incumbent, time, s, s + 1));
    }
  }
  return absl::OkStatus();
}

}  // namespace stagewright
