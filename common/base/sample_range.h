// A half-open range of samples of one mini-batch: the name of a piece of work. Stages may use
// different micro-batch sizes, so work is never named by a micro-batch number.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ostream>

namespace stagewright {

struct SampleRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  bool Contains(SampleRange other) const { return begin <= other.begin && other.end <= end; }
  friend auto operator<=>(const SampleRange&, const SampleRange&) = default;
};

inline SampleRange Intersect(SampleRange a, SampleRange b) {
  SampleRange both{std::max(a.begin, b.begin), std::min(a.end, b.end)};
  return both.empty() ? SampleRange{} : both;
}

inline std::ostream& operator<<(std::ostream& out, SampleRange r) {
  return out << '[' << r.begin << ',' << r.end << ')';
}

}  // namespace stagewright
