// Messages to the planner. They wait here while the planner is away, as many as it still needs: of
// the progress that piles up, each device's latest and what was traced; of the steps so far, the
// latest, which go before all else: a history without them would have a hole until they came. What
// was logged about jobs goes last, but before the message that ends its run.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <string>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/log/log.h"
#include "stagewright/v1/worker_service.pb.h"
#include "worker_daemon/daemon/logs/log_tails.h"

namespace stagewright {

// Thread-safe.
class Outbox {
 public:
  // From so many waiting messages on, progress without a trace replaces the older one of the same
  // job and device.
  static constexpr size_t kBound = 256;

  void Push(v1::ConnectRequest message);
  // Something was logged, which the planner is told if it is about a job. Does not log.
  void Tell(const LogLine& line);
  // Lines that went with an earlier stream may be lost with it: the planner is told them again.
  void TellAgain();
  // Puts a message that could not be sent back to the front.
  void PushFront(v1::ConnectRequest message);
  // The next message, or nothing after `wait`, or after Wake.
  std::optional<v1::ConnectRequest> Pop(absl::Duration wait);
  void Wake();
  // Jobs whose progress was replaced since their steps so far were pushed last, or since they were
  // named here: the planner lacks steps of theirs. None as long as much waits.
  std::set<std::string> LackingSteps();
  // Drops the progress of runs of the job that have ended: those of this generation and older.
  void Forget(const std::string& job, int64_t generation);
  size_t size() const;

 private:
  // What is next, if there is something.
  std::optional<v1::ConnectRequest> Next(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::deque<v1::ConnectRequest> messages_ ABSL_GUARDED_BY(mutex_);
  LogTails logs_ ABSL_GUARDED_BY(mutex_);
  bool told_ ABSL_GUARDED_BY(mutex_) = false;             // Something was logged since Pop looked.
  bool told_before_end_ ABSL_GUARDED_BY(mutex_) = false;  // Before the message in front.
  std::set<std::string> lacking_ ABSL_GUARDED_BY(mutex_);
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace stagewright
