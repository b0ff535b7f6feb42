// Random numbers that are a function of a key and an index, on processors and on GPUs: the outputs
// of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define STAGEWRIGHT_ON_GPUS_TOO __host__ __device__
#else
#define STAGEWRIGHT_ON_GPUS_TOO
#endif

namespace stagewright {

constexpr uint64_t kGamma = 0x9e3779b97f4a7c15u;
constexpr uint64_t kFirstFactor = 0xbf58476d1ce4e5b9u, kSecondFactor = 0x94d049bb133111ebu;
constexpr int kNumberBits = 53;  // Numbers are shares of 2^53.

// SplitMix64's finaliser: a bijection that mixes all bits.
STAGEWRIGHT_ON_GPUS_TOO inline uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= kFirstFactor;
  x ^= x >> 27;
  x *= kSecondFactor;
  x ^= x >> 31;
  return x;
}

// The number at `index`, in [0, 2^53).
STAGEWRIGHT_ON_GPUS_TOO inline uint64_t KeyedNumber(uint64_t key, int64_t index) {
  return Mix(key + (static_cast<uint64_t>(index) + 1) * kGamma) >> (64 - kNumberBits);
}

}  // namespace stagewright
