// What all of some devices do together (all_reduce.h), and with elements of which types.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stagewright {

// Sums of all elements, on each device; the sum of an equal chunk on each, that which has its place
// in the list of devices; or exchanging such chunks.
enum class Collective : uint8_t { kAllReduce, kReduceScatter, kAllGather };

// What reductions add.
enum class Element : uint8_t { kFloat64, kFloat32, kFloat16, kBFloat16 };

// In bytes.
constexpr size_t ElementSize(Element element) {
  switch (element) {
    case Element::kFloat64:
      return 8;
    case Element::kFloat32:
      return 4;
    case Element::kFloat16:
    case Element::kBFloat16:
      return 2;
  }
  return 0;
}

}  // namespace stagewright
