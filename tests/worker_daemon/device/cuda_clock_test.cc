#include "worker_daemon/device/cuda_clock.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include "absl/strings/match.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

Nanos Now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond + Nanos(time.tv_nsec);
}

TEST(CudaClock, RefusesAGpuThatIsNotThere) {
  const auto clock = MakeCudaClock(1000);
  EXPECT_TRUE(absl::IsFailedPrecondition(clock.status()));
  EXPECT_THAT(std::string(clock.status().message()), HasSubstr("no GPU 1000"));
}

void ExpectAgreesWithTheHosts(DeviceClock& clock) {
  Nanos last = 0;
  for (int i = 0; i < 100; ++i) {
    if (i == 50) {
      ASSERT_EQ(clock.Align(), absl::OkStatus());
    }
    const Nanos before = Now();
    const DeviceClock::Mark mark = clock.Record();
    const auto time = clock.TimeOf(mark);
    ASSERT_TRUE(time.ok()) << time.status();
    EXPECT_GE(*time, before - kMillisecond);
    EXPECT_LE(*time, Now() + kMillisecond);
    EXPECT_GE(*time, last - kMillisecond / 10);
    last = *time;
  }
}

TEST(CudaClock, AgreesWithTheHosts) {
  auto clock = MakeCudaClock(0);
  if (!clock.ok()) GTEST_SKIP() << clock.status();
  ExpectAgreesWithTheHosts(**clock);
}

// A stream that does not wait for the default one.
TEST(CudaClock, OfAStreamOfItsOwn) {
  cudaStream_t stream = nullptr;
  const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) GTEST_SKIP() << cudaGetErrorString(error);
  {
    auto clock = MakeCudaClock(0, stream);
    ASSERT_TRUE(clock.ok()) << clock.status();
    ExpectAgreesWithTheHosts(**clock);
  }
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace
}  // namespace stagewright
