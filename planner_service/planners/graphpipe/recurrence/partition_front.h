// The Pareto front of the partitions of a suffix of the order, by devices and needs.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "common/base/units.h"
#include "planner_service/planners/graphpipe/recurrence/need_rows.h"
#include "planner_service/planners/graphpipe/recurrence/partition.h"

namespace stagewright {

struct PartitionPoint {
  int32_t devices = 0;
  int32_t stages = 0;
  int32_t end = 0;        // Where the first stage ends.
  int32_t rest = -1;      // The point of the front at `end` that follows the first stage.
  int32_t option = -1;    // How the first stage runs: an index of RelaxedSearch::options().
  int64_t in_flight = 0;  // Samples of the first stage.
  double traffic = 0;     // Bytes per sample over all boundaries.
  Bytes peak = 0;         // The most bytes that a stage holds.
};

class PartitionFront {
 public:
  static constexpr int32_t kMaxPoints = 96;

  bool empty() const { return points_.empty(); }
  // Fewest devices of any point that was ever offered.
  int32_t fewest_devices() const { return fewest_devices_; }
  const std::vector<PartitionPoint>& points() const { return points_; }
  // What the i-th point asks of the frontier's classes, by class.
  const NeedRows::Row* Needs(size_t i, size_t classes) const { return needs_.data() + i * classes; }

  void Clear();
  // The front behind the last operator: no stage, no needs.
  void BeginAtTheEnd();

  // Takes up a point unless one of the front dominates it (PICKBETTER: devices and needs, then less
  // traffic, then less memory; with `options.max_stages`, stages too), and drops what it dominates.
  // False if a point was lost beyond kMaxPoints: most devices, then the greatest needs. O(points *
  // classes).
  bool Insert(const PartitionPoint& point, const std::vector<NeedRows::Row>& needs,
              const NeedRows& rows, const PartitionOptions& options);

 private:
  bool ReplaceWorst(const PartitionPoint& point, const std::vector<NeedRows::Row>& needs,
                    const NeedRows& rows);

  int32_t fewest_devices_ = std::numeric_limits<int32_t>::max() / 2;
  std::vector<PartitionPoint> points_;
  std::vector<NeedRows::Row> needs_;  // [point][class]
};

}  // namespace stagewright
