// Sleep until a file descriptor has an event or somebody wakes the sleeper.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace stagewright {

// One thread sleeps by it.
class EventSleep {
 public:
  // Errors: INTERNAL if the process has no file descriptors left.
  static absl::StatusOr<std::unique_ptr<EventSleep>> Create();
  ~EventSleep();
  EventSleep(const EventSleep&) = delete;

  // What ends sleeps from now on. Each event of `event_fd`, which may be -1, ends one: that under
  // way or, if there is none, the next, and no other although nobody has read what it tells of, so
  // that whoever leaves an event to another thread can go on sleeping. Of `others` each ends all
  // sleeps while it is readable. Not together with itself. REQUIRES: those that are no longer among
  // them are closed; their numbers, which may be other files' by now, come back in later calls
  // only.
  void Watch(int event_fd, const std::vector<int>& others);

  // Sleeps for so long at most, to the millisecond above it.
  void SleepFor(absl::Duration longest);

  // Ends a sleep. Thread-safe.
  void Wake();

 private:
  EventSleep(int wake_fd, int events_fd) : wake_fd_(wake_fd), events_fd_(events_fd) {}

  const int wake_fd_, events_fd_;
  std::set<int> watched_;
};

}  // namespace stagewright
