#include "planner_service/search/judge.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner_service/evaluator/evaluator.h"

namespace stagewright {
namespace {

// Strategies of one problem.
bool IsSame(const Strategy& a, const Strategy& b) {
  const auto same_stage = [](const Stage& x, const Stage& y) {
    return x.micro_batch == y.micro_batch && x.recompute == y.recompute &&
           x.schedule == y.schedule && x.devices == y.devices && x.nodes == y.nodes &&
           x.replicated == y.replicated;
  };
  return a.kind == b.kind && a.asynchronous == b.asynchronous &&
         a.vertical_sync == b.vertical_sync && a.edges == b.edges && a.orders == b.orders &&
         std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(), b.stages.end(), same_stage);
}

absl::StatusOr<Verdict> VerdictWith(const Problem& problem, const Strategy& strategy,
                                    const EvaluateOptions& options) {
  const absl::StatusOr<Evaluation> evaluation =
      Evaluate(*problem.graph, *problem.cluster, *problem.costs, strategy, options);
  Verdict verdict;
  if (absl::IsCancelled(evaluation.status())) return verdict;
  if (absl::IsResourceExhausted(evaluation.status()) ||
      absl::IsFailedPrecondition(evaluation.status())) {
    verdict.rejection = evaluation.status();
    return verdict;
  }
  RETURN_IF_ERROR(evaluation.status());
  verdict.time = evaluation->iteration_time;
  for (const DeviceUse& device : evaluation->devices) {
    verdict.peak = std::max(verdict.peak, device.peak_memory);
  }
  return verdict;
}

}  // namespace

absl::StatusOr<Verdict> VerdictOn(const Problem& problem, const Strategy& strategy,
                                  std::function<bool()> stop) {
  EvaluateOptions options;
  options.optimizer = problem.optimizer;
  options.stop = std::move(stop);
  return VerdictWith(problem, strategy, options);
}

absl::StatusOr<Verdict> SearchVerdictOn(const Problem& problem, const Strategy& strategy,
                                        std::function<bool()> stop) {
  EvaluateOptions options;
  options.optimizer = problem.optimizer;
  options.stop = std::move(stop);
  options.brief = true;
  return VerdictWith(problem, strategy, options);
}

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
  context_.Spend(WorkOfJudging(proposal.strategy));
  const absl::StatusOr<Verdict> verdict = VerdictOnce(proposal.strategy);
  if (!verdict.ok()) {
    return Annotate(verdict.status(), absl::StrCat("candidate ", proposal.text));
  }
  if (!verdict->rejection.ok()) {
    rejection_ = verdict->rejection;
    if (whole_ != nullptr) whole_->rejection_ = rejection_;
  }
  if (!verdict->time) return absl::OkStatus();
  ++accepted_;
  Keep(proposal.strategy, *verdict->time, verdict->peak, proposal.text);
  return absl::OkStatus();
}

// Views of a cluster often propose the same.
absl::StatusOr<Verdict> Judge::VerdictOnce(const Strategy& strategy) {
  auto& known = whole_ == nullptr ? known_ : whole_->known_;
  for (const auto& [other, verdict] : known) {
    if (IsSame(other, strategy)) return verdict;
  }
  // What is there already is the answer when the time is over.
  std::function<bool()> stop;
  if (best_ != nullptr) stop = [this] { return context_.Expired(); };
  ASSIGN_OR_RETURN(const Verdict verdict, SearchVerdictOn(problem_, strategy, std::move(stop)));
  if (verdict.time || !verdict.rejection.ok()) known.emplace_back(strategy, verdict);
  return verdict;
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
