#include "common/clock/steady_now.h"

#include <chrono>

#include "absl/time/clock.h"

namespace stagewright {

absl::Time SteadyNow() {
  using Clock = std::chrono::steady_clock;
  struct Moment {
    absl::Time time = absl::Now();
    Clock::time_point steady = Clock::now();
  };
  static const Moment first;
  return first.time + absl::FromChrono(Clock::now() - first.steady);
}

std::chrono::system_clock::time_point ClockIn(absl::Duration time) {
  return absl::ToChronoTime(absl::Now() + time);
}

absl::Time OnTheClock(absl::Time steady) {
  const absl::Duration set = absl::Now() - SteadyNow();
  // Clocks are corrected by a little all the time.
  return absl::AbsDuration(set) < absl::Seconds(1) ? steady : steady + set;
}

}  // namespace stagewright
