#include "worker_daemon/device/work_clock.h"

#include <ctime>

namespace stagewright {

double WorkClock(const at::Device& device) {
  timespec time;
  clock_gettime(device.is_cpu() ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace stagewright
