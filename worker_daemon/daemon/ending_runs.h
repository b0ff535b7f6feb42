// Runs that are over for the planner and end on threads of their own: a run may wait for a file
// system that does not answer, and nothing else is to wait for it.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "stagewright/v1/worker_service.pb.h"
#include "worker_daemon/daemon/worker_run.h"

namespace stagewright {

// A run that takes longer on an accelerator may wait for kernels that never end, which only the end
// of the process ends. Shards of a large model that are under way are written sooner.
inline constexpr absl::Duration kStuckAfter = absl::Minutes(5);

// Thread-safe.
class EndingRuns {
 public:
  // Called when nothing is left of a run, on its thread.
  using OnEnded = std::function<void(const std::string& job, int64_t generation)>;
  // Called once for a run on an accelerator that has not ended in time, on a thread of its own.
  using OnStuck = std::function<void(const std::string& job, const std::string& devices)>;

  EndingRuns(OnEnded on_ended, OnStuck on_stuck, absl::Duration patience = kStuckAfter);
  // Waits for all of them.
  ~EndingRuns();

  // Does not wait.
  void Add(std::unique_ptr<WorkerRun> run, bool on_accelerator);
  // Those that have not ended.
  std::vector<v1::RunningJob> List() const;
  bool Has(const std::string& job, int64_t generation) const;
  bool empty() const { return List().empty(); }

 private:
  struct Entry {
    v1::RunningJob run;
    bool ended = false;
    absl::Time stuck_at = absl::InfiniteFuture();  // Unless it ends before.
    std::thread thread;
  };

  void Watch();
  // When the next that has not ended, and was not told of, is stuck.
  absl::Time NextStuck() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Threads that are done.
  void Reap() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const OnEnded on_ended_;
  const OnStuck on_stuck_;
  const absl::Duration patience_;
  mutable absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread watch_;
};

}  // namespace stagewright
