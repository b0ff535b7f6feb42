// Waiting that ends by SteadyNow().
//
// The timed waits of Abseil's Mutex, CondVar and Notification end when the machine's clock shows a
// certain time, also those that are given a duration. Whoever sets that clock while they last ends
// them at once, or has them last longer by as much.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace stagewright {

// As mutex.AwaitWithDeadline(condition, deadline) otherwise: whether the condition holds, which it
// may not do behind a deadline. REQUIRES: the mutex is held for writing.
bool AwaitUntil(absl::Mutex& mutex, const absl::Condition& condition, absl::Time deadline)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
bool AwaitFor(absl::Mutex& mutex, const absl::Condition& condition, absl::Duration patience)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

// As absl::Notification, for threads that do something again and again until they are to stop.
// Thread-safe.
class SteadyNotification {
 public:
  void Notify();
  // Whether it came within that time.
  bool WaitFor(absl::Duration patience);
  bool HasBeenNotified() { return WaitFor(absl::ZeroDuration()); }

 private:
  absl::Mutex mutex_;
  bool notified_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace stagewright
