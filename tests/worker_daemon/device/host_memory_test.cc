#include "worker_daemon/device/host_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>
#include <string>
#include <thread>

namespace stagewright {
namespace {

constexpr int64_t kBytes = int64_t{48} << 20;

int64_t Faults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// Bytes of this process that are in memory.
int64_t Resident() {
  std::ifstream statm("/proc/self/statm");
  int64_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * 4096;
}

void Touch() { at::empty({kBytes}, at::kByte).fill_(1); }

TEST(HostMemoryTest, FreedMemoryIsUsedAgainByAllThreads) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers have a heap of their own";
#endif
  KeepFreedHostMemory();
  Touch();
  const int64_t before = Faults();
  for (int i = 0; i < 10; ++i) {
    Touch();
    std::thread(Touch).join();
  }
  // Without it, each of the 20 blocks comes with all its pages fresh. Aligned blocks do not always
  // fit where one of their size was.
  EXPECT_LT(Faults() - before, 12 * kBytes / 4096);
  const int64_t held = Resident();
  ReleaseFreedMemory();
  EXPECT_LT(Resident(), held - kBytes / 2);
}

}  // namespace
}  // namespace stagewright
