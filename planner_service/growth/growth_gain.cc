#include "planner_service/growth/growth_gain.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace stagewright {

GrowthVerdict PaysToGrow(const GrowthOffer& offer) {
  const absl::Duration change = kLeastChange + 2 * offer.start.value_or(kUnknownStart);
  const double part =
      offer.before > 0
          ? std::max(0.0, 1 - static_cast<double>(offer.after) / static_cast<double>(offer.before))
          : 0;
  const absl::Duration saved = static_cast<double>(std::max<int64_t>(offer.steps_left, 0)) * part *
                               absl::Nanoseconds(offer.step_time.count());
  GrowthVerdict verdict;
  verdict.pays = saved > kLeastReturn * change;
  verdict.why = absl::StrFormat(
      "a step would take %.0f %% less, which saves %.1f s of the %d steps left, %s twice the "
      "%.1f s that the change costs",
      part * 100, absl::ToDoubleSeconds(saved), offer.steps_left,
      verdict.pays ? "more than" : "not more than", absl::ToDoubleSeconds(change));
  return verdict;
}

}  // namespace stagewright
