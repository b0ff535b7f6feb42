#include "common/cost/gradient_buckets.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

namespace stagewright {
namespace {

constexpr int64_t kMostBuckets = 64;

// With one bucket cut where half of its bytes are complete; nothing if one node completes them all.
std::optional<std::vector<GradientBucket>> Halved(const std::vector<GradientBucket>& buckets,
                                                  size_t index, std::span<const Bytes> gradients) {
  const GradientBucket& whole = buckets[index];
  const auto end = index == 0 ? static_cast<int32_t>(gradients.size()) : buckets[index - 1].mark;
  GradientBucket half;
  for (int32_t node = end; --node > whole.mark && 2 * half.bytes < whole.bytes;) {
    if (gradients[node] > 0) half = {node, half.bytes + gradients[node]};
  }
  if (half.bytes == 0) return std::nullopt;
  std::vector<GradientBucket> cut = buckets;
  cut[index].bytes -= half.bytes;
  cut.insert(cut.begin() + static_cast<int64_t>(index), half);
  return cut;
}

}  // namespace

std::vector<double> TimeLeftAt(std::span<const double> backward) {
  std::vector<double> left(backward.size());
  std::exclusive_scan(backward.begin(), backward.end(), left.begin(), 0.0);
  return left;
}

std::vector<GradientBucket> CutGradients(std::span<const Bytes> gradients, Bytes bucket_bytes) {
  std::vector<GradientBucket> buckets;
  bool open = false;
  for (size_t node = gradients.size(); node-- > 0;) {
    if (gradients[node] == 0) continue;
    if (!open) buckets.emplace_back();
    buckets.back().mark = static_cast<int32_t>(node);
    buckets.back().bytes += gradients[node];
    open = buckets.back().bytes < bucket_bytes;
  }
  return buckets;
}

double ExposedSums(const std::vector<GradientBucket>& buckets, std::span<const double> left,
                   const AllReduceLines& sums) {
  if (buckets.empty()) return 0;
  if (buckets.size() == 1) return sums.Time(buckets[0].bytes);
  double end = -std::numeric_limits<double>::infinity();
  for (const GradientBucket& bucket : buckets)
    end = std::max(end, -left[bucket.mark]) + sums.Time(bucket.bytes);
  return std::max(end, 0.0);
}

double UpdateTail(const std::vector<GradientBucket>& buckets, std::span<const double> left,
                  const AllReduceLines& sums, double step) {
  const double summed = ExposedSums(buckets, left, sums);
  if (buckets.size() < 2) return summed + step;
  Bytes all = 0;
  for (const GradientBucket& bucket : buckets) all += bucket.bytes;
  const GradientBucket& last = buckets.back();
  const double rest = step * static_cast<double>(last.bytes) / static_cast<double>(all);
  const double before = std::max(summed - sums.Time(last.bytes), 0.0);
  return std::max(before + step - rest, summed) + rest;
}

std::vector<GradientBucket> BestBuckets(std::span<const Bytes> gradients,
                                        std::span<const double> left, const AllReduceLines& sums,
                                        Bytes bucket_bytes) {
  if (bucket_bytes > 0) return CutGradients(gradients, bucket_bytes);
  const Bytes all = std::accumulate(gradients.begin(), gradients.end(), Bytes(0));
  const double latency = sums.Time(0);
  const auto cost_of = [&](const std::vector<GradientBucket>& buckets) {
    return ExposedSums(buckets, left, sums) + latency * (static_cast<double>(buckets.size()) - 1);
  };
  std::vector<GradientBucket> best;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t n = 1; n <= kMostBuckets; n *= 2) {
    std::vector<GradientBucket> buckets = CutGradients(gradients, Bytes((all.count() + n - 1) / n));
    double cost = cost_of(buckets);
    for (const bool last : {true, false}) {
      while (!buckets.empty()) {
        auto finer = Halved(buckets, last ? buckets.size() - 1 : 0, gradients);
        if (!finer.has_value() || cost_of(*finer) >= cost) break;
        cost = cost_of(*finer);
        buckets = *std::move(finer);
      }
    }
    if (cost >= least) continue;
    least = cost;
    best = std::move(buckets);
  }
  return best;
}

}  // namespace stagewright
