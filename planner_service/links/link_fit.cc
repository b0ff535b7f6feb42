#include "planner_service/links/link_fit.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

constexpr Nanos kLongest = 60 * kSecond;

absl::Status Check(std::span<const LinkSample> samples) {
  for (const LinkSample& sample : samples) {
    if (sample.size < 0 || sample.time <= 0 || sample.time > kLongest) {
      return absl::InvalidArgumentError(absl::StrCat("the probe measured ", sample.time.count(),
                                                     " ns for a message of ", sample.size.count(),
                                                     " bytes"));
    }
  }
  const auto sizes =
      std::minmax_element(samples.begin(), samples.end(),
                          [](const LinkSample& a, const LinkSample& b) { return a.size < b.size; });
  if (samples.empty() || sizes.first->size == sizes.second->size)
    return absl::InvalidArgumentError("the probe measured fewer than two sizes");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LinkRates> FitLink(std::span<const LinkSample> samples) {
  RETURN_IF_ERROR(Check(samples));
  // Normal equations of sum(((latency + size * slope) / time - 1) ^ 2).
  double ones = 0, sizes = 0, squares = 0, times = 0, products = 0;
  for (const LinkSample& sample : samples) {
    const auto size = static_cast<double>(sample.size);
    const auto time = static_cast<double>(sample.time);
    ones += 1 / (time * time);
    sizes += size / (time * time);
    squares += size * size / (time * time);
    times += 1 / time;
    products += size / time;
  }
  const double determinant = ones * squares - sizes * sizes;
  double latency = (times * squares - products * sizes) / determinant;
  double slope = (ones * products - sizes * times) / determinant;
  if (!(latency >= 0)) {
    latency = 0;
    slope = products / squares;
  }
  if (!(slope > 0) || !std::isfinite(slope))
    return absl::InvalidArgumentError("the probe's times do not grow with the size of messages");
  return LinkRates{Nanos(std::llround(latency)), 1e9 / slope};
}

}  // namespace stagewright
