// The newest lines that planner and workers logged about a job, for those who cannot read logs on
// the nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
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

  // What a worker that takes part in that run tells, at `now`: lines that it told before are no new
  // ones, and those that numbers say never came are counted. O(lines), but for the logarithm of
  // workers. REQUIRES: CheckLimits(message).
  void Add(const std::string& worker, v1::LogLines message, absl::Time now);
  // What the planner itself logs.
  void Add(const LogLine& line, int64_t generation);
  // Those that came later than the one with that position, by time. O(lines log lines).
  v1::ListJobLogsResponse ToProto(int64_t after_position = 0) const;

 private:
  // How far a worker's lines have come.
  struct Told {
    int64_t generation = 0;
    int64_t numbering = 0;    // LogLines.numbering.
    int64_t next_number = 1;  // The next new line's.
  };

  void Append(v1::JobLogLine line, absl::Time now);
  // Takes lines out of the message that came before. The number of those that are lost.
  int64_t DropKnown(const std::string& worker, v1::LogLines& message);

  std::map<std::string, Told> told_;  // By worker, of its newest attempt.
  std::deque<v1::JobLogLine> lines_;  // As they came.
  size_t bytes_ = 0;
  int64_t dropped_ = 0;
  int64_t last_ = 0;  // Position.
};

}  // namespace stagewright
