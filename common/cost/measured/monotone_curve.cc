#include "common/cost/measured/monotone_curve.h"

#include <algorithm>
#include <cstddef>

namespace stagewright {

MonotoneCurve::MonotoneCurve(std::vector<std::pair<double, double>> points, bool constant)
    : points_(std::move(points)), constant_(constant) {
  struct Pool {
    double sum = 0;
    size_t count = 0;
    double mean() const { return sum / static_cast<double>(count); }
  };
  std::vector<Pool> pools;
  for (const auto& [x, y] : points_) {
    pools.push_back({y, 1});
    while (pools.size() > 1 && pools.back().mean() < pools[pools.size() - 2].mean()) {
      const Pool last = pools.back();
      pools.pop_back();
      pools.back().sum += last.sum;
      pools.back().count += last.count;
    }
  }
  size_t i = 0;
  for (const Pool& pool : pools) {
    if (pool.count == 1) {
      ++i;  // As it was: its mean would be rounded.
      continue;
    }
    for (size_t end = i + pool.count; i < end; ++i) points_[i].second = pool.mean();
  }
}

double MonotoneCurve::At(double x) const {
  const auto& [first_x, first_y] = points_.front();
  if (constant_ || x <= first_x) return first_y;
  if (points_.size() == 1) return first_y * x / first_x;
  auto right = std::lower_bound(points_.begin(), points_.end(), x,
                                [](const auto& point, double at) { return point.first < at; });
  if (right == points_.end()) --right;
  const auto left = right - 1;
  if (x == right->first) return right->second;
  const double slope = (right->second - left->second) / (right->first - left->first);
  return left->second + (x - left->first) * slope;
}

}  // namespace stagewright
