// The newest lines of the log about each job that the planner has not been told yet. Lines beyond
// the bounds are counted and lost, the oldest first: a log never holds up training, nor grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/log/log.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {

// Not thread-safe. Everything is O(log jobs) but for the lines that it moves.
class LogTails {
 public:
  // Bounds on what waits, of one job and in all.
  static constexpr int kMostLines = 256;
  static constexpr size_t kMostBytes = 64 << 10;
  static constexpr size_t kMostJobs = 64;
  // Between two messages about a run, but for what goes before its end.
  static constexpr absl::Duration kEvery = absl::Seconds(1);

  // Keeps a line that names a job and a generation of it; others are of no concern.
  void Add(const LogLine& line);
  // Whether something waits to be told of that run.
  bool Has(const std::string& job, int64_t generation) const;
  // When the next message may go: now or before, in the future, or never.
  absl::Time due() const;
  // The message of the run that has waited longest. REQUIRES: due() <= now.
  v1::ConnectRequest TakeDue(absl::Time now);
  // What waits of that run, whether it is due or not. REQUIRES: Has(job, generation).
  v1::ConnectRequest Take(const std::string& job, int64_t generation, absl::Time now);

 private:
  using Run = std::pair<std::string, int64_t>;
  struct Tail {
    v1::LogLines lines;
    size_t bytes = 0;
    absl::Time due = absl::InfinitePast();
  };

  static bool Waits(const Tail& tail) { return tail.lines.lines_size() > 0; }

  std::map<Run, Tail> tails_;
};

}  // namespace stagewright
