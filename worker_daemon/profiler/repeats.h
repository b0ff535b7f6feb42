// When a time has been measured often enough, and what it is then.
#pragma once

#include <vector>

namespace stagewright {

// The median of those values that lie within three deviations of the median of all, a deviation
// being 1.4826 times the median distance from it (the standard deviation of normal values).
// REQUIRES: not empty. O(n).
double RobustMedian(const std::vector<double>& values);

// Whether the median of so many values is known to 2 %: the deviation over the square root of their
// number is at most that share of it, of five values at least.
bool IsSettled(const std::vector<double>& values);

}  // namespace stagewright
