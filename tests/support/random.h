// Random numbers that are the same on every machine: what all random cases are drawn with.
#pragma once

#include <cstdint>
#include <random>

namespace stagewright::testing {

using Rng = std::mt19937_64;

// Uniform in [low, high].
inline int64_t Uniform(Rng& rng, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(rng() % static_cast<uint64_t>(high - low + 1));
}

}  // namespace stagewright::testing
