// A quantity that does not fall as work grows, known at a few sizes.
#pragma once

#include <utility>
#include <vector>

namespace stagewright {

// Piecewise linear between the points, constant before the first. Beyond the last it goes on as
// between the last two; one point is all there is to know of a constant, or else of what is
// proportional to the size.
class MonotoneCurve {
 public:
  // Points (x, y) by ascending x > 0, y >= 0; at least one. Where y falls from one point to the
  // next, which is noise, neighbours take their mean until it does not (pool adjacent violators:
  // the nearest curve in least squares that does not fall). O(points).
  MonotoneCurve(std::vector<std::pair<double, double>> points, bool constant);

  double At(double x) const;  // O(log points)

 private:
  std::vector<std::pair<double, double>> points_;
  bool constant_ = false;
};

}  // namespace stagewright
