// The newest lines of the log about each job, until the planner is told them and, for a stream that
// breaks before they arrive, behind that. Lines beyond the bounds go, the oldest first, and are
// counted as lost unless they were told: a log never holds up training, nor grows.
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

// Not thread-safe. What is due when goes by the `now` of callers, not by what lines say. Everything
// is O(log jobs) but for the lines that it moves.
class LogTails {
 public:
  // Bounds on what is kept, of one job and in all.
  static constexpr int kMostLines = 256;
  static constexpr size_t kMostBytes = 64 << 10;
  static constexpr size_t kMostJobs = 64;
  // Between two messages about a run, but for what goes before its end.
  static constexpr absl::Duration kEvery = absl::Seconds(1);

  // Keeps a line that names a job and a generation of it; others are of no concern.
  void Add(const LogLine& line, absl::Time now);
  // Whether something waits to be told of that run.
  bool Has(const std::string& job, int64_t generation) const;
  // When the next message may go: now or before, in the future, or never.
  absl::Time due() const;
  // The message of the run that has waited longest. REQUIRES: due() <= now.
  v1::ConnectRequest TakeDue(absl::Time now);
  // What waits of that run, whether it is due or not. REQUIRES: Has(job, generation).
  v1::ConnectRequest Take(const std::string& job, int64_t generation, absl::Time now);
  // What was told may not have arrived: all that is kept waits again.
  void TellAgain();

 private:
  using Run = std::pair<std::string, int64_t>;
  struct Tail {
    google::protobuf::RepeatedPtrField<v1::JobLogLine> lines;
    int told = 0;             // So many of them, the first.
    int64_t lost = 0;         // Lines that nobody was told.
    int64_t numbering = 0;    // LogLines.numbering.
    int64_t last_number = 0;  // The newest line's.
    size_t bytes = 0;
    absl::Time due = absl::InfinitePast();
  };

  static bool Waits(const Tail& tail) { return tail.told < tail.lines.size(); }

  std::map<Run, Tail> tails_;
};

}  // namespace stagewright
