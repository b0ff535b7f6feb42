// Who is told of changes of which job.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "planner_service/jobs/job.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright {

// Thread-safe. A thread of its own asks for a job that has changed, makes one message of it and
// gives that to all of the job's watchers: what a change costs its author does not grow with them.
class JobWatches {
 public:
  using Snapshot = std::shared_ptr<const v1::Job>;
  // Null: there is no such job any more, and nothing else is told. Must not block, nor call back.
  using Watcher = std::function<void(Snapshot)>;
  // The job as it is; NOT_FOUND if there is none any more, asked again after other errors. May
  // block and may call Changed.
  using Fetch = std::function<absl::StatusOr<Job>(int64_t job)>;

  // A job is told at most every `interval`.
  explicit JobWatches(Fetch fetch, absl::Duration interval = absl::Milliseconds(100));
  ~JobWatches();

  // Tells `watcher` of the job soon, and of later versions until Remove: always newer ones, not
  // each of them.
  int64_t Add(int64_t job, Watcher watcher);
  // When it has returned, the watcher is not called any more.
  void Remove(int64_t id);
  // The job has another version. O(log jobs).
  void Changed(int64_t job);

  int64_t watchers() const;

 private:
  struct Watch {
    Watcher watcher;
    int64_t told = -1;  // The version.
  };
  struct Watched {
    std::map<int64_t, Watch> watches;
    absl::Time due = absl::InfiniteFuture();  // Infinite: nothing to tell.
    absl::Time told = absl::InfinitePast();
    Snapshot last;
  };

  void Run();
  // Waits for a job that is due. False at the end.
  bool AwaitDue(int64_t& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell(int64_t job) ABSL_LOCKS_EXCLUDED(mutex_);
  void TellGone(int64_t job) ABSL_LOCKS_EXCLUDED(mutex_);

  const Fetch fetch_;
  const absl::Duration interval_;
  // Held while watchers are called, so that Remove waits for them. Taken before `mutex_`.
  absl::Mutex telling_;
  mutable absl::Mutex mutex_;
  std::map<int64_t, Watched> jobs_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, int64_t> job_of_ ABSL_GUARDED_BY(mutex_);  // By watch.
  int64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace stagewright
