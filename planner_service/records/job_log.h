// The newest lines that planner and workers logged about a job, for those who cannot read logs on
// the nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "absl/time/time.h"
#include "common/log/log.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {

// Not thread-safe.
class JobLog {
 public:
  // Bounds on what is kept; the oldest lines are counted and dropped.
  static constexpr size_t kMostLines = 1000;
  static constexpr size_t kMostBytes = 256 << 10;

  // What a worker that takes part in that run tells, at `now`. REQUIRES: CheckLimits(message).
  void Add(const std::string& worker, v1::LogLines message, absl::Time now);
  // What the planner itself logs.
  void Add(const LogLine& line, int64_t generation);
  // Those that came later than the one with that position, by time. O(lines log lines).
  v1::ListJobLogsResponse ToProto(int64_t after_position = 0) const;

 private:
  void Append(v1::JobLogLine line, absl::Time now);

  std::deque<v1::JobLogLine> lines_;  // As they came.
  size_t bytes_ = 0;
  int64_t dropped_ = 0;
  int64_t last_ = 0;  // Position.
};

}  // namespace stagewright
