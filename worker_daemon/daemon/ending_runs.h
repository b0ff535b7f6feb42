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
#include "stagewright/v1/worker_service.pb.h"
#include "worker_daemon/daemon/worker_run.h"

namespace stagewright {

// Thread-safe.
class EndingRuns {
 public:
  // Called when nothing is left of a run, on its thread.
  using OnEnded = std::function<void(const std::string& job, int64_t generation)>;

  explicit EndingRuns(OnEnded on_ended) : on_ended_(std::move(on_ended)) {}
  // Waits for all of them.
  ~EndingRuns();

  // Does not wait.
  void Add(std::unique_ptr<WorkerRun> run);
  // Those that have not ended.
  std::vector<v1::RunningJob> List() const;
  bool Has(const std::string& job, int64_t generation) const;
  bool empty() const { return List().empty(); }

 private:
  struct Entry {
    v1::RunningJob run;
    bool ended = false;
    std::thread thread;
  };

  // Threads that are done.
  void Reap() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const OnEnded on_ended_;
  mutable absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagewright
