#include "worker_daemon/daemon/outbox.h"

#include <utility>

namespace stagewright {

void Outbox::Push(v1::ConnectRequest message) {
  absl::MutexLock lock(&mutex_);
  messages_.push_back(std::move(message));
}

void Outbox::PushFront(v1::ConnectRequest message) {
  absl::MutexLock lock(&mutex_);
  messages_.push_front(std::move(message));
}

std::optional<v1::ConnectRequest> Outbox::Pop(absl::Duration wait) {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(
                              +[](Outbox* outbox) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                                return outbox->woken_ || !outbox->messages_.empty();
                              },
                              this),
                          wait);
  woken_ = false;
  if (messages_.empty()) return std::nullopt;
  v1::ConnectRequest message = std::move(messages_.front());
  messages_.pop_front();
  return message;
}

void Outbox::Wake() {
  absl::MutexLock lock(&mutex_);
  woken_ = true;
}

}  // namespace stagewright
