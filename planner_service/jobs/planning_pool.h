// A fixed number of threads for planning and a bounded queue in front of them: a full queue refuses
// instead of growing. The threads have a lower priority than others of the process: a search takes
// a whole core for seconds, and calls, heartbeats and jobs need theirs for a moment at once.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/base/status.h"

namespace stagewright {

// Thread-safe.
class PlanningPool {
 public:
  // How much nicer (setpriority) the threads are than who made the pool; those of plans that nobody
  // waits for are nicer still.
  static constexpr int kNicer = 10, kNicest = 15;

  PlanningPool(int threads, int queue_limit, int nicer = kNicer);
  // Runs what is queued, then joins.
  ~PlanningPool();

  // RESOURCE_EXHAUSTED names the limit if the queue is full.
  absl::Status Submit(std::function<void()> work);
  int queued() const;
  int64_t rejected() const;

 private:
  void Run();

  const int queue_limit_;
  const int nicer_;
  mutable absl::Mutex mutex_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  int64_t rejected_ ABSL_GUARDED_BY(mutex_) = 0;
  int idle_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace stagewright
