#include "worker_daemon/cuda/keyed_mask.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <vector>

#include "worker_daemon/cuda/keyed_numbers.h"

namespace stagewright {
namespace {

class KeyedMaskTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int gpus = 0;
    const cudaError_t error = cudaGetDeviceCount(&gpus);
    if (error != cudaSuccess || gpus == 0) GTEST_SKIP() << cudaGetErrorString(error);
  }

  // [keys, row], on the host.
  static std::vector<char> Draw(const std::vector<uint64_t>& keys, int64_t row, uint64_t least) {
    const size_t size = keys.size() * static_cast<size_t>(row);
    bool* kept = nullptr;
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&kept), size), cudaSuccess);
    EXPECT_EQ(cudaMemset(kept, 7, size), cudaSuccess);
    EXPECT_TRUE(QueueKeyedMask(keys, row, least, kept, nullptr));
    std::vector<char> host(size);
    EXPECT_EQ(cudaMemcpy(host.data(), kept, size, cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(cudaFree(kept), cudaSuccess);
    return host;
  }
};

TEST_F(KeyedMaskTest, DrawsTheNumbersOfTheHost) {
  const std::vector<uint64_t> keys = {0, 1, 0x8000000000000000u, 0xffffffffffffffffu, kGamma};
  constexpr int64_t kRow = 4099;
  // Also at a number that was drawn, beside it, and at both ends.
  const uint64_t drawn = KeyedNumber(keys[3], 17);
  for (const uint64_t least : {uint64_t{0}, uint64_t{1} << 52, drawn, drawn + 1,
                               (uint64_t{1} << kNumberBits) - 1, uint64_t{1} << kNumberBits}) {
    const std::vector<char> kept = Draw(keys, kRow, least);
    for (size_t i = 0; i < kept.size(); ++i) {
      const uint64_t number = KeyedNumber(keys[i / kRow], static_cast<int64_t>(i % kRow));
      ASSERT_EQ(kept[i], number >= least) << least << " " << i;
    }
  }
}

// More keys than a launch carries, and rows of more numbers than one round of its threads.
TEST_F(KeyedMaskTest, TakesAnyNumberOfKeysAndNumbers) {
  constexpr uint64_t kHalf = uint64_t{1} << (kNumberBits - 1);
  std::vector<uint64_t> keys(600);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = Mix(i);
  const std::vector<char> many = Draw(keys, 3, kHalf);
  for (size_t i = 0; i < many.size(); ++i) {
    ASSERT_EQ(many[i], KeyedNumber(keys[i / 3], static_cast<int64_t>(i % 3)) >= kHalf) << i;
  }
  constexpr int64_t kLong = 3'000'001;
  const std::vector<char> whole = Draw({5}, kLong, kHalf);
  for (int64_t i = 0; i < kLong; ++i)
    ASSERT_EQ(whole[static_cast<size_t>(i)], KeyedNumber(5, i) >= kHalf) << i;
  EXPECT_TRUE(QueueKeyedMask({}, 4, kHalf, nullptr, nullptr));
  EXPECT_TRUE(QueueKeyedMask(keys, 0, kHalf, nullptr, nullptr));
}

}  // namespace
}  // namespace stagewright
