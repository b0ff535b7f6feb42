#include "planner_service/search/judge.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner_service/evaluator/evaluator.h"

namespace stagewright {

absl::Status Judge::Consider(std::vector<Proposal> proposals, int64_t most, double hope) {
  std::stable_sort(proposals.begin(), proposals.end(), [](const Proposal& a, const Proposal& b) {
    return std::tie(a.estimate, a.text) < std::tie(b.estimate, b.text);
  });
  const int64_t last = count_ + most;
  for (Proposal& proposal : proposals) {
    if (context_.Expired() || count_ >= last) break;
    if (best_ != nullptr && proposal.estimate > hope * best_seconds()) break;
    if (!seen_.insert(proposal.text).second) continue;
    RETURN_IF_ERROR(Evaluate(proposal));
  }
  return absl::OkStatus();
}

absl::Status Judge::Evaluate(Proposal& proposal) {
  ++count_;
  if (whole_ != nullptr) ++whole_->count_;
  if (view_ != nullptr) proposal.strategy = OnDevicesOf(*view_, std::move(proposal.strategy));
  context_.Charge(EffortOfJudging(proposal.strategy));
  EvaluateOptions options;
  options.optimizer = problem_.optimizer;
  // What is there already is the answer when the time is over.
  if (best_ != nullptr) options.stop = [this] { return context_.Expired(); };
  const absl::StatusOr<Evaluation> evaluation = stagewright::Evaluate(
      *problem_.graph, *problem_.cluster, *problem_.costs, proposal.strategy, options);
  if (absl::IsCancelled(evaluation.status())) return absl::OkStatus();
  if (absl::IsResourceExhausted(evaluation.status()) ||
      absl::IsFailedPrecondition(evaluation.status())) {
    rejection_ = evaluation.status();
    if (whole_ != nullptr) whole_->rejection_ = rejection_;
    return absl::OkStatus();
  }
  if (!evaluation.ok()) {
    return Annotate(evaluation.status(), absl::StrCat("candidate ", proposal.text));
  }
  ++accepted_;
  Bytes peak = 0;
  for (const DeviceUse& device : evaluation->devices) peak = std::max(peak, device.peak_memory);
  Keep(proposal.strategy, evaluation->iteration_time, peak, proposal.text);
  return absl::OkStatus();
}

void Judge::Keep(const Strategy& strategy, Nanos time, Bytes peak, const std::string& text) {
  const auto key = std::tie(time, peak, text);
  if (best_ != nullptr && key >= std::tie(best_time_, best_peak_, best_text_)) return;
  std::tie(best_time_, best_peak_, best_text_) = key;
  best_ = std::make_unique<Strategy>(strategy);
  if (whole_ != nullptr) {
    whole_->Keep(strategy, time, peak,
                 view_ == nullptr ? text : absl::StrCat(view_->name, ": ", text));
  } else if (context_.on_improvement) {
    context_.on_improvement(strategy);
  }
}

}  // namespace stagewright
