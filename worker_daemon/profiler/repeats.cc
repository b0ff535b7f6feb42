#include "worker_daemon/profiler/repeats.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace stagewright {
namespace {

constexpr double kNormal = 1.4826;
constexpr double kFarthest = 3;
constexpr size_t kLeast = 5;
constexpr double kPrecise = 0.02;

double Median(std::vector<double> values) {
  const size_t half = values.size() / 2;
  std::sort(values.begin(), values.end());
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double Deviation(const std::vector<double>& values, double median) {
  std::vector<double> distances;
  distances.reserve(values.size());
  for (double value : values) distances.push_back(std::fabs(value - median));
  return kNormal * Median(std::move(distances));
}

}  // namespace

double RobustMedian(const std::vector<double>& values) {
  const double median = Median(values);
  const double farthest = kFarthest * Deviation(values, median);
  std::vector<double> near;
  std::copy_if(values.begin(), values.end(), std::back_inserter(near),
               [&](double value) { return std::fabs(value - median) <= farthest; });
  return Median(std::move(near));
}

bool IsSettled(const std::vector<double>& values) {
  if (values.size() < kLeast) return false;
  const double median = Median(values);
  return Deviation(values, median) <=
         kPrecise * median * std::sqrt(static_cast<double>(values.size()));
}

}  // namespace stagewright
