// When a job is looked at for more devices, so that it does not shrink and grow again and again,
// and nobody searches in vain again and again.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace stagewright {

// A job whose growths are forgotten after an hour without one waits longer after each.
inline constexpr absl::Duration kGrowthsForgottenAfter = absl::Hours(1);
inline constexpr absl::Duration kLongestGrowthPause = absl::Minutes(10);
// The same devices that did not pay are looked at again after so long, for what may have changed.
inline constexpr absl::Duration kSameDevicesAgain = absl::Minutes(10);

class GrowthPauses {
 public:
  // Its run has begun: it is left alone for `pause`, and twice as long for each growth before, so
  // that workers that come back one after the other cost one change.
  void NoteRun(absl::Duration pause, absl::Time now);
  // It was looked at with these devices besides its own, in vain.
  void NoteVain(std::vector<std::string> offered, absl::Duration pause, absl::Time now);
  // It goes on with more devices.
  void NoteGrowth(absl::Time now);

  bool MayLook(const std::vector<std::string>& offered, absl::Time now) const;

 private:
  int growths_ = 0;
  absl::Time grown_ = absl::InfinitePast();
  absl::Time next_ = absl::InfinitePast();
  std::vector<std::string> vain_;  // Devices.
  absl::Time vain_until_ = absl::InfinitePast();
};

}  // namespace stagewright
