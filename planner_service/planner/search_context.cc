#include "planner_service/planner/search_context.h"

#include <algorithm>

namespace stagewright {

bool SearchContext::IsOver() const {
  Charge(1);
  if (effort() > most_effort_ || work() > most_work_) return true;
  const bool stopped = cancelled_.load(std::memory_order_relaxed) || Clock::now() >= deadline_;
  if (!stopped && (outer_ == nullptr || !outer_->IsOver())) return false;
  if (stopped || outer_->Stopped()) stopped_.store(true, std::memory_order_relaxed);
  return true;
}

Nanos SearchContext::WorkLeft() const {
  Nanos left = kAnyWork;
  for (const SearchContext* context = this; context != nullptr; context = context->outer_) {
    if (context->most_work_ != kAnyWork)
      left = std::min(left, std::max<Nanos>(context->most_work_ - context->work(), 0));
  }
  return left;
}

namespace {

// Replicas' micro-batches.
int64_t SharesOf(const Strategy& strategy) {
  int64_t shares = 0;
  for (const Stage& stage : strategy.stages) {
    shares += static_cast<int64_t>(stage.devices.size()) *
              (strategy.mini_batch / std::max<int64_t>(1, stage.micro_batch));
  }
  return shares;
}

}  // namespace

int64_t EffortOfJudging(const Strategy& strategy) {
  constexpr int64_t kEffortPerShare = 8;  // Passes, transfers, memory.
  return kEffortPerShare * SharesOf(strategy);
}

Nanos WorkOfJudging(const Strategy& strategy) {
  Nanos work = work::kShare * SharesOf(strategy);
  for (const Stage& stage : strategy.stages) {
    const int64_t devices = std::ssize(stage.devices);
    const int64_t nodes = std::ssize(stage.nodes);
    work += work::kNode * nodes + work::kHeldNode * devices * nodes;
    work += work::kSumPair * devices * (devices - 1);
  }
  return work;
}

}  // namespace stagewright
