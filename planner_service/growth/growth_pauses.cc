#include "planner_service/growth/growth_pauses.h"

#include <algorithm>
#include <utility>

namespace stagewright {

void GrowthPauses::NoteRun(absl::Duration pause, absl::Time now) {
  constexpr int kMostDoublings = 16;
  if (now - grown_ > kGrowthsForgottenAfter) growths_ = 0;
  next_ = now + std::min(pause * (1 << std::min(growths_, kMostDoublings)), kLongestGrowthPause);
  vain_.clear();  // Its next plan is another.
}

void GrowthPauses::NoteVain(std::vector<std::string> offered, absl::Duration pause,
                            absl::Time now) {
  next_ = now + pause;
  vain_ = std::move(offered);
  std::sort(vain_.begin(), vain_.end());
  vain_until_ = now + kSameDevicesAgain;
}

void GrowthPauses::NoteGrowth(absl::Time now) {
  ++growths_;
  grown_ = now;
}

bool GrowthPauses::MayLook(const std::vector<std::string>& offered, absl::Time now) const {
  if (now < next_) return false;
  if (now >= vain_until_) return true;
  return std::any_of(offered.begin(), offered.end(), [this](const std::string& device) {
    return !std::binary_search(vain_.begin(), vain_.end(), device);
  });
}

}  // namespace stagewright
