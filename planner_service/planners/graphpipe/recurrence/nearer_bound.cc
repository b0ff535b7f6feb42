#include "planner_service/planners/graphpipe/recurrence/nearer_bound.h"

#include <algorithm>

namespace stagewright {

bool NearerBound::Prepare(int32_t devices, StageFit& fit, StateCount& states) {
  if (relaxed_->configs().size() == 1) {
    before_ = relaxed_->before();
    messages_matter_ = false;
    return true;
  }
  if (t_ == fit.t() && devices <= devices_) return true;
  devices_ = 0;
  fit.set_messages_matter(false);
  const std::vector<int32_t> least_after = relaxed_->After();
  const int32_t n = ranges_->oracle().size();
  before_.assign(n + 1, RelaxedSearch::kNone);
  before_[0] = 0;
  row_begin_.assign(n + 1, 0);
  first_options_.clear();
  for (int32_t end = 1; end <= n; ++end) {
    row_begin_[end] = first_options_.size();
    // No answer is cut here.
    if (relaxed_->LeastBefore(end) + least_after[end] > devices) continue;
    if (!PrepareRow(end, devices, least_after[end], fit, states)) return false;
  }
  t_ = fit.t();
  devices_ = devices;
  messages_matter_ = fit.messages_matter();
  return true;
}

bool NearerBound::PrepareRow(int32_t end, int32_t devices, int32_t least_after, StageFit& fit,
                             StateCount& states) {
  const std::vector<StageOption>& options = relaxed_->options();
  const size_t width = relaxed_->configs().size();
  fastest_.assign(width, 0);
  for (size_t c = 1; c < width; ++c) fastest_[c] = relaxed_->option_ends()[c - 1];
  for (size_t r = 0;; ++r) {
    const StageRanges::Range* range = ranges_->At(end, r);
    if (range == nullptr || range->begin < relaxed_->Reach(end)) return true;
    if (!states.Next()) return false;
    const size_t at = first_options_.size();
    first_options_.resize(at + width, -1);
    const int32_t before = before_[range->begin];
    const int32_t most_replicas = devices - before - least_after;
    if (most_replicas < 1) continue;
    if (!partition_->Allows(range->begin, end, ranges_->oracle().size())) continue;
    for (size_t c = 0; c < width; ++c) {
      const int32_t o = fit.First(*range, end, static_cast<int32_t>(c), most_replicas, fastest_[c]);
      if (o < 0) continue;
      first_options_[at + c] = static_cast<int16_t>(o);
      before_[end] = std::min(before_[end], before + options[o].replicas);
    }
  }
}

void NearerBound::Forget() {
  first_options_ = {};
  devices_ = 0;
}

}  // namespace stagewright
