// A thread that runs the tasks handed to it, one after the other. After a task it polls briefly for
// the next before it sleeps, since waking a thread takes tens of microseconds.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <thread>

#include "absl/synchronization/mutex.h"

namespace stagewright {

class ProgressThread {
 public:
  ProgressThread();
  // Runs what was queued before, then ends the thread.
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  void Run(std::function<void()> task);

 private:
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !tasks_.empty();
  }
  void Poll() const;
  void Loop();

  absl::Mutex mutex_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> has_tasks_ = false;  // Saves Poll the lock.
  std::thread thread_;                   // Last: uses the members above.
};

}  // namespace stagewright
