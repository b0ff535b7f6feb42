#include "planner_service/search/local_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/strategy/orders.h"

namespace stagewright {
namespace {

// Neighbours without an improvement of the best draft until the search goes back to it.
constexpr int32_t kPatience = 400;

}  // namespace

std::vector<ListRule> FewListRules(bool split_backward) {
  std::vector<ListRule> rules;
  for (bool split : {false, true}) {
    if (split && !split_backward) break;
    rules.push_back({ListRule::Due::kTail, 0.5, 1, split, 0, 0});
    rules.push_back({ListRule::Due::kTurn, 0, 0.4, split, 0, 0});
  }
  return rules;
}

std::vector<ListRule> ListRules(bool split_backward) {
  std::vector<ListRule> rules;
  for (bool split : {false, true}) {
    if (split && !split_backward) break;
    for (double patience : {0.0, 0.15}) {
      for (double pace : {0.0, 0.5, 1.0}) {
        rules.push_back({ListRule::Due::kTail, pace, 1, split, patience, 0});
      }
      rules.push_back({ListRule::Due::kTurn, 0, 1, split, patience, 0});
      rules.push_back({ListRule::Due::kTurn, 0, 0.4, split, patience, 0});
      rules.push_back({ListRule::Due::kTurn, 0.2, 0.4, split, patience, 0});
    }
  }
  return rules;
}

int64_t PassesOf(const Problem& problem, const Draft& draft) {
  int64_t units = 0;
  for (const DraftStage& stage : draft.stages) units += std::ssize(stage.devices);
  return 3 * units * (problem.mini_batch / draft.micro_batch);
}

LocalSearch::LocalSearch(const OperatorCosts& costs, const PlanOptions& options,
                         const SearchContext& context)
    : costs_(costs),
      context_(context),
      moves_(costs, options),
      rules_(ListRules(options.split_backward)),
      few_(FewListRules(options.split_backward)) {}

ListResult LocalSearch::Schedule(const TaskGraph& graph, const ListRule& rule, bool orders,
                                 Nanos limit) {
  ++states_;
  const int32_t split = rule.split ? 1 : 0;
  if (!std::exchange(known_[split], true)) SetLeastTimes(graph, rule.split, least_[split]);
  ListResult result = scheduler_.Run(graph, least_[split], rule, orders, limit);
  // Making the graph and the draft takes about as long as a pass for two operators, a unit or a
  // link.
  passes_ += result.work + costs_.size() / 2 +
             static_cast<int64_t>(graph.units.size() + graph.links.size());
  context_.Spend(work::kListPass * result.work);
  return result;
}

TaskGraph LocalSearch::GraphOf(const Draft& draft) {
  known_[0] = known_[1] = false;
  TaskGraph graph = MakeTaskGraph(costs_, draft, memory_share_);
  context_.Spend(work::kTaskUnit * (std::ssize(graph.units) + costs_.size()) +
                 work::kTaskLink * std::ssize(graph.links));
  return graph;
}

std::optional<double> LocalSearch::Promise(Draft& draft) {
  if (!SortStages(costs_.problem().operators->dag(), draft) || !moves_.Allowed(draft)) {
    return std::nullopt;
  }
  return stagewright::Promise(GraphOf(draft));
}

std::optional<RatedDraft> LocalSearch::Rate(Draft draft, bool quick) {
  if (!SortStages(costs_.problem().operators->dag(), draft) || !moves_.Allowed(draft)) {
    return std::nullopt;
  }
  const TaskGraph graph = GraphOf(draft);
  std::optional<RatedDraft> best;
  const auto consider = [&](const ListRule& rule) {
    const Nanos limit = best.has_value() ? best->estimate : std::numeric_limits<Nanos>::max();
    const ListResult result = Schedule(graph, rule, /*orders=*/false, limit);
    if (!result.fits) return false;
    if (!best.has_value() || result.step_time < best->estimate) {
      best = RatedDraft{draft, rule, result.step_time};
    }
    return true;
  };
  for (const ListRule& rule : quick ? few_ : rules_) {
    if (!consider(rule) || context_.Expired()) break;
  }
  if (quick || !best.has_value() || context_.Expired()) return best;
  ListRule improved = best->rule;
  improved.rounds = 3;
  consider(improved);
  return best;
}

bool LocalSearch::Change(const ListResult& last, RandomSource& random, Draft& draft) const {
  if (wide_) return moves_.ChangeWidely(last, random, draft);
  return alike_ ? moves_.ChangeAlike(last, random, draft) : moves_.Change(last, random, draft);
}

RatedDraft LocalSearch::Improve(RatedDraft start, int64_t budget, double threshold,
                                RandomSource& random) {
  const int64_t first = passes_;
  RatedDraft best = start;
  RatedDraft current = std::move(start);
  ListResult last = Schedule(GraphOf(current.draft), current.rule);
  // Trying all rules costs about as many schedules; where that is much of the budget, moves are
  // better.
  const bool retry = (passes_ - first) * static_cast<int64_t>(rules_.size()) <= budget / 4;
  const Nanos move = work::kPoll + work::kMovedOperator * costs_.size();
  int32_t idle = 0;
  int32_t wasted = 0;
  while (passes_ - first < budget && wasted < 1000 && !context_.Expired(move)) {
    const double left = 1 - static_cast<double>(passes_ - first) / static_cast<double>(budget);
    Draft neighbour = current.draft;
    bool changed = Change(last, random, neighbour);
    if (changed && random.OneIn(4)) changed = Change(last, random, neighbour);
    if (!changed || PassesOf(costs_.problem(), neighbour) > most_passes_) {
      ++wasted;
      continue;
    }
    wasted = 0;
    const TaskGraph graph = GraphOf(neighbour);
    ListRule rule = current.rule;
    if (random.OneIn(8)) {
      const int32_t rounds = rule.rounds;
      rule = rules_[random.Below(rules_.size())];
      rule.rounds = rounds;
    }
    const double most = static_cast<double>(current.estimate) * (1 + threshold * left * left);
    ListResult result =
        Schedule(graph, rule, /*orders=*/false, static_cast<Nanos>(std::ceil(most)));
    if (!result.fits || static_cast<double>(result.step_time) > most) {
      ++idle;
    } else {
      current = {std::move(neighbour), rule, result.step_time};
      last = std::move(result);
      if (current.estimate < best.estimate) {
        best = current;
        idle = 0;
      } else {
        ++idle;
      }
    }
    if (idle < kPatience) continue;
    idle = 0;
    if (retry) best = AllRules(best);
    current = best;
    last = Schedule(GraphOf(current.draft), current.rule);
  }
  return retry ? AllRules(best) : best;
}

RatedDraft LocalSearch::AllRules(const RatedDraft& rated) {
  std::optional<RatedDraft> again = Rate(rated.draft, /*quick=*/false);
  return again.has_value() && again->estimate < rated.estimate ? *std::move(again) : rated;
}

Strategy LocalSearch::ToStrategy(const RatedDraft& rated) {
  Strategy strategy = stagewright::ToStrategy(costs_.problem(), rated.draft);
  ListResult result = Schedule(GraphOf(rated.draft), rated.rule, /*orders=*/true);
  SetOrders(*costs_.problem().graph, std::move(result.orders), strategy);
  return strategy;
}

}  // namespace stagewright
