// Messages to the planner. They wait here while the planner is away.
#pragma once

#include <deque>
#include <optional>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {

// Thread-safe.
class Outbox {
 public:
  void Push(v1::ConnectRequest message);
  // Puts a message that could not be sent back to the front.
  void PushFront(v1::ConnectRequest message);
  // The next message, or nothing after `wait`, or after Wake.
  std::optional<v1::ConnectRequest> Pop(absl::Duration wait);
  void Wake();

 private:
  absl::Mutex mutex_;
  std::deque<v1::ConnectRequest> messages_ ABSL_GUARDED_BY(mutex_);
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace stagewright
