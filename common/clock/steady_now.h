// The time by which a program measures how long something takes, or has to wait.
#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace stagewright {

// As absl::Now() when the program first asked, and from then on as much later as time has passed:
// whoever sets the machine's clock makes nobody late. What people read is told by absl::Now().
absl::Time SteadyNow();

// When the machine's clock shows that so much time has passed: for gRPC, which is told deadlines by
// that clock and at once makes them moments of a steady one.
std::chrono::system_clock::time_point ClockIn(absl::Duration time);

// What the machine's clock shows, or showed, at that moment. Exact to a second.
absl::Time OnTheClock(absl::Time steady);

}  // namespace stagewright
