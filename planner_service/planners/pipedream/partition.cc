#include "planner_service/planners/pipedream/partition.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace stagewright::pipedream {

Partitioner::Partitioner(const States& states, StateCosts costs, const Rules& rules,
                         std::vector<Level> levels, const Limits& limits,
                         const SearchContext& context)
    : states_(states), rules_(rules), limits_(limits), context_(context), levels_(levels) {
  CHECK(!levels_.empty());
  costs_.push_back(std::move(costs));
  int32_t inside = 1;  // Replicas that the levels below may multiply one by.
  for (size_t l = 0; l < levels_.size(); ++l) {
    Limits own;
    own.most_replicas = std::max(1, limits_.most_replicas / inside);
    if (l == 0) own.memory = limits_.memory;
    if (levels_.size() == 1) {
      own.most_stages = limits_.most_stages;
      own.exact_stages = limits_.exact_stages;
    }
    level_limits_.push_back(std::move(own));
    inside *= std::min(levels_[l].machines, limits_.most_replicas);
  }
}

double Partitioner::LinksOf(size_t level) const {
  return level == 0 ? 1 : levels_[level - 1].machines;
}

void Partitioner::Run() {
  const auto size = static_cast<size_t>(states_.size());
  for (size_t l = 0; l + 1 < levels_.size(); ++l) {
    StateCosts outer;
    outer.parameters = costs_[l].parameters;
    outer.boundary = costs_[l].boundary;
    outer.inner.assign(size * size, Recurrence::kNever);
    Recurrence recurrence(states_, costs_[l], rules_, levels_[l], LinksOf(l), level_limits_[l],
                          context_);
    for (int32_t start = 0; start + 1 < states_.size() && !context_.Expired(); ++start) {
      recurrence.Run(start);
      for (int32_t j = start + 1; j < states_.size(); ++j) {
        outer.inner[start * size + j] = recurrence.At(j, levels_[l].machines);
      }
    }
    visited_ += recurrence.visited();
    costs_.push_back(std::move(outer));
  }
  const size_t last = levels_.size() - 1;
  outermost_ = std::make_unique<Recurrence>(states_, costs_[last], rules_, levels_[last],
                                            LinksOf(last), level_limits_[last], context_);
  outermost_->Run(0, outermost_->ChainBound());
  bottleneck_ = outermost_->At(states_.size() - 1, levels_[last].machines);
  visited_ += outermost_->visited();
}

std::vector<PlannedStage> Partitioner::Stages(double slack) {
  if (bottleneck_ == Recurrence::kNever) return {};
  const size_t last = levels_.size() - 1;
  return Expand(last,
                outermost_->Fewest(states_.size() - 1, levels_[last].machines, bottleneck_ * slack),
                slack);
}

std::vector<PlannedStage> Partitioner::Expand(size_t level, const std::vector<Split>& splits,
                                              double slack) {
  std::vector<PlannedStage> stages;
  for (const Split& split : splits) {
    PlannedStage stage{states_.Between(split.from, split.to), split.replicas, {}};
    if (level > 0) {
      Recurrence inner(states_, costs_[level - 1], rules_, levels_[level - 1], LinksOf(level - 1),
                       level_limits_[level - 1], context_);
      inner.Run(split.from);
      const int32_t machines = levels_[level - 1].machines;
      const double bound = inner.At(split.to, machines) * slack;
      stage.inner = Expand(level - 1, inner.Fewest(split.to, machines, bound), slack);
      if (stage.inner.empty()) return {};
    }
    stages.push_back(std::move(stage));
  }
  return stages;
}

}  // namespace stagewright::pipedream
