// A value for each micro-batch of each unit of a task graph.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace stagewright {

template <typename T>
class PassTable {
 public:
  // Keeps its memory. O(units * micro_batches).
  void Reset(size_t units, int32_t micro_batches, T value) {
    micro_batches_ = micro_batches;
    values_.assign(units * static_cast<size_t>(micro_batches), value);
  }
  void Fill(int32_t unit, T value) {
    std::fill_n(values_.begin() + Index(unit, 0), micro_batches_, value);
  }
  T& operator()(int32_t unit, int32_t micro_batch) { return values_[Index(unit, micro_batch)]; }
  const T& operator()(int32_t unit, int32_t micro_batch) const {
    return values_[Index(unit, micro_batch)];
  }

 private:
  std::ptrdiff_t Index(int32_t unit, int32_t micro_batch) const {
    return std::ptrdiff_t{unit} * micro_batches_ + micro_batch;
  }

  int32_t micro_batches_ = 0;
  std::vector<T> values_;
};

}  // namespace stagewright
