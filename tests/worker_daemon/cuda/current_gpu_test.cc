#include "worker_daemon/cuda/current_gpu.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <thread>

namespace stagewright {
namespace {

class CurrentGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const cudaError_t error = cudaGetDeviceCount(&gpus_);
    if (error != cudaSuccess || gpus_ == 0) GTEST_SKIP() << cudaGetErrorString(error);
  }

  static int Current() {
    int gpu = -1;
    EXPECT_EQ(cudaGetDevice(&gpu), cudaSuccess);
    return gpu;
  }

  int gpus_ = 0;
};

TEST_F(CurrentGpuTest, GoesBackToAGpuInUse) {
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);  // Takes it into use.
  for (int gpu = 0; gpu < gpus_; ++gpu) {
    {
      const CurrentGpu current(gpu);
      EXPECT_EQ(Current(), gpu);
    }
    EXPECT_EQ(Current(), 0);
  }
}

// In a process of its own, where the first GPU is not in use yet. A machine with one has no other.
TEST_F(CurrentGpuTest, TakesNoOtherGpuIntoUse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (int gpu = 1; gpu < gpus_; ++gpu) {
    EXPECT_EXIT(
        {
          std::thread([gpu] {
            { const CurrentGpu current(gpu); }
            std::_Exit(Current() == gpu ? 0 : 1);
          }).join();
        },
        ::testing::ExitedWithCode(0), "");
  }
}

}  // namespace
}  // namespace stagewright
