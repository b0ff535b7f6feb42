#include "planner_service/planners/drl_pp/reward.h"

#include <algorithm>
#include <utility>

#include "planner_service/search/judge.h"
#include "planner_service/search/micro_batch_sizes.h"

namespace stagewright {
namespace {

constexpr int64_t kMostMicroBatches = 64;  // More only lengthen the simulation.
constexpr size_t kMostSizes = 6;

}  // namespace

MeasureStrategy SimulatedSeconds(const Problem& problem) {
  return [&problem](const Strategy& strategy) -> absl::StatusOr<double> {
    ASSIGN_OR_RETURN(const Verdict verdict, VerdictOn(problem, strategy));
    RETURN_IF_ERROR(verdict.rejection);
    return static_cast<double>(*verdict.time) * 1e-9;
  };
}

Rewards::Rewards(const Problem& problem, const PlanOptions& options, const SearchContext& context,
                 MeasureStrategy measure)
    : problem_(problem), options_(options), context_(context), measure_(std::move(measure)) {}

// Sizes that all stages of the draft may share, the smallest left out where they are too many,
// largest first, at most kMostSizes, evenly spread.
std::vector<int64_t> Rewards::MicroBatches(const Draft& draft) const {
  size_t replicas = 1;
  for (const DraftStage& stage : draft.stages) replicas = std::max(replicas, stage.devices.size());
  std::vector<int64_t> sizes;
  for (int64_t size : stagewright::MicroBatches(problem_, options_)) {
    if (options_.micro_batch == 0 && problem_.mini_batch / size > kMostMicroBatches) continue;
    if (static_cast<int64_t>(replicas) <= MostReplicas(problem_, options_, size))
      sizes.push_back(size);
  }
  std::reverse(sizes.begin(), sizes.end());
  return EvenlySpread(std::move(sizes), kMostSizes);
}

const Measured* Rewards::Of(Draft draft) {
  draft.micro_batch = problem_.mini_batch;
  const auto [entry, is_new] = known_.try_emplace(ToString(draft));
  std::optional<Measured>& best = entry->second;
  if (!is_new) return best.has_value() ? &*best : nullptr;
  for (int64_t micro_batch : MicroBatches(draft)) {
    draft.micro_batch = micro_batch;
    for (const bool recompute : {false, true}) {
      if (measured_ > 0 && context_.Expired()) return best.has_value() ? &*best : nullptr;
      if (recompute && options_.recompute == RecomputePolicy::kNever) continue;
      if (!recompute && options_.recompute == RecomputePolicy::kAlways) continue;
      for (DraftStage& stage : draft.stages) stage.recompute = recompute;
      Strategy strategy = ToStrategy(problem_, draft);
      strategy.asynchronous = options_.asynchronous;
      strategy.vertical_sync = options_.vertical_sync;
      const absl::StatusOr<double> seconds = measure_(strategy);
      ++measured_;
      // That time is up says less than why a strategy cannot run.
      if (!seconds.ok() && (last_error_.ok() || !absl::IsDeadlineExceeded(seconds.status()))) {
        last_error_ = seconds.status();
      }
      if (seconds.ok() && (!best.has_value() || *seconds < best->seconds)) {
        best = Measured{std::move(strategy), *seconds};
      }
      // Running again what fits as it is does not pay.
      if (seconds.ok()) break;
    }
  }
  return best.has_value() ? &*best : nullptr;
}

}  // namespace stagewright
