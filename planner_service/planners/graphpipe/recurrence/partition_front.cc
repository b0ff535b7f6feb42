#include "planner_service/planners/graphpipe/recurrence/partition_front.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace stagewright {
namespace {

// -1: a dominates b; 1: b dominates a (equals go to less traffic, then less memory); 0: neither.
int Compare(const PartitionPoint& a, const NeedRows::Row* a_needs, const PartitionPoint& b,
            const NeedRows::Row* b_needs, size_t classes, const NeedRows& rows,
            const PartitionOptions& options) {
  bool a_wins = a.devices <= b.devices;
  bool b_wins = b.devices <= a.devices;
  if (options.exact_stages && a.stages != b.stages) return 0;
  if (options.max_stages > 0) {
    a_wins = a_wins && a.stages <= b.stages;
    b_wins = b_wins && b.stages <= a.stages;
  }
  for (size_t x = 0; x < classes && (a_wins || b_wins); ++x) {
    a_wins = a_wins && rows.AtMost(a_needs[x], b_needs[x]);
    b_wins = b_wins && rows.AtMost(b_needs[x], a_needs[x]);
  }
  if (a_wins && b_wins) {
    if (a.traffic != b.traffic) return a.traffic < b.traffic ? -1 : 1;
    return a.peak <= b.peak ? -1 : 1;
  }
  return a_wins ? -1 : b_wins ? 1 : 0;
}

}  // namespace

void PartitionFront::Clear() {
  points_.clear();
  needs_.clear();
  fewest_devices_ = std::numeric_limits<int32_t>::max() / 2;
}

void PartitionFront::BeginAtTheEnd() {
  points_.push_back({});
  fewest_devices_ = 0;
}

bool PartitionFront::Insert(const PartitionPoint& point, const std::vector<NeedRows::Row>& needs,
                            const NeedRows& rows, const PartitionOptions& options) {
  const size_t classes = needs.size();
  fewest_devices_ = std::min(fewest_devices_, point.devices);
  size_t kept = 0;
  for (size_t i = 0; i < points_.size(); ++i) {
    const int order =
        Compare(points_[i], Needs(i, classes), point, needs.data(), classes, rows, options);
    if (order < 0) {
      // Whoever dominates the new point dominates what the new point dominates.
      CHECK(kept == i);
      return true;
    }
    if (order > 0) continue;
    if (kept != i) {
      points_[kept] = points_[i];
      std::copy_n(needs_.begin() + i * classes, classes, needs_.begin() + kept * classes);
    }
    ++kept;
  }
  points_.resize(kept);
  needs_.resize(kept * classes);
  if (kept == kMaxPoints) return ReplaceWorst(point, needs, rows);
  points_.push_back(point);
  needs_.insert(needs_.end(), needs.begin(), needs.end());
  return true;
}

// The least promising of the points and the new one goes.
bool PartitionFront::ReplaceWorst(const PartitionPoint& point,
                                  const std::vector<NeedRows::Row>& needs, const NeedRows& rows) {
  const size_t classes = needs.size();
  const auto key = [&](const PartitionPoint& p, const NeedRows::Row* asked) {
    int64_t sum = 0;
    for (size_t x = 0; x < classes; ++x) sum += rows.Sum(asked[x]);
    return std::pair<int64_t, int64_t>(p.devices, sum);
  };
  size_t worst = 0;
  for (size_t i = 1; i < points_.size(); ++i) {
    if (key(points_[i], Needs(i, classes)) > key(points_[worst], Needs(worst, classes))) worst = i;
  }
  if (key(point, needs.data()) < key(points_[worst], Needs(worst, classes))) {
    points_[worst] = point;
    std::copy_n(needs.begin(), classes, needs_.begin() + worst * classes);
  }
  return false;
}

}  // namespace stagewright
