#include "worker_daemon/cuda/event_query.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace stagewright {
namespace {

TEST(EventQuery, NotReadyIsNoErrorOfTheThread) {
  int gpus = 0;
  const cudaError_t error = cudaGetDeviceCount(&gpus);
  if (error != cudaSuccess || gpus == 0) GTEST_SKIP() << cudaGetErrorString(error);
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  std::atomic<bool> may_end = false;
  const auto wait = [](void* flag) {
    while (!*static_cast<std::atomic<bool>*>(flag)) std::this_thread::yield();
  };
  ASSERT_EQ(cudaLaunchHostFunc(stream, wait, &may_end), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  EXPECT_EQ(QueryEvent(event), cudaErrorNotReady);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  may_end = true;
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(QueryEvent(event), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace
}  // namespace stagewright
