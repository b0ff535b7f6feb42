// How long something of this process takes, whatever else runs on the machine.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>

namespace stagewright::testing {

class Stopwatch {
 public:
  using Clock = std::chrono::steady_clock;

  void Start() { *this = Stopwatch(); }

  // What has passed by the clock that shows less: several threads of the process add up on that of
  // its processor time, other programs on the other.
  std::chrono::milliseconds Elapsed() const {
    return std::min(std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - wall_),
                    ProcessorTime() - processor_);
  }

 private:
  static std::chrono::milliseconds ProcessorTime() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return std::chrono::milliseconds(now.tv_sec * 1000 + now.tv_nsec / 1'000'000);
  }

  Clock::time_point wall_ = Clock::now();
  std::chrono::milliseconds processor_ = ProcessorTime();
};

}  // namespace stagewright::testing
