#include <cuda_runtime_api.h>

#include <algorithm>

#include "worker_daemon/cuda/keyed_mask.h"
#include "worker_daemon/cuda/keyed_numbers.h"

namespace stagewright {
namespace {

constexpr int64_t kKeys = 256;  // 2 of the 4 KiB that a launch may carry.
constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 4096;  // A row with more numbers than their threads: several each.

struct Keys {
  uint64_t values[kKeys];
};

// A block's second index is its row.
__global__ void Draw(Keys keys, int64_t row, uint64_t least, bool* kept) {
  const uint64_t key = keys.values[blockIdx.y];
  bool* const own = kept + static_cast<int64_t>(blockIdx.y) * row;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < row; i += stride)
    own[i] = KeyedNumber(key, i) >= least;
}

}  // namespace

bool QueueKeyedMask(std::span<const uint64_t> keys, int64_t row, uint64_t least, bool* kept,
                    void* stream) {
  if (row == 0) return true;
  const int64_t blocks = std::min((row + kThreads - 1) / kThreads, kMostBlocks);
  for (size_t first = 0; first < keys.size(); first += kKeys) {
    const auto part = keys.subspan(first, std::min<size_t>(kKeys, keys.size() - first));
    Keys own = {};
    std::copy(part.begin(), part.end(), own.values);
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(part.size()));
    Draw<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        own, row, least, kept + static_cast<int64_t>(first) * row);
    if (cudaPeekAtLastError() != cudaSuccess) return false;
  }
  return true;
}

}  // namespace stagewright
