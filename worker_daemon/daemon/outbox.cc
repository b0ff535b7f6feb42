#include "worker_daemon/daemon/outbox.h"

#include <algorithm>
#include <utility>

namespace stagewright {
namespace {

bool Replaceable(const v1::ConnectRequest& message) {
  return message.has_progress() && message.progress().trace_size() == 0 &&
         message.progress().devices_size() == 1;
}

bool SameSource(const v1::Progress& a, const v1::Progress& b) {
  return a.job() == b.job() && a.generation() == b.generation() &&
         a.devices(0).device() == b.devices(0).device();
}

}  // namespace

void Outbox::Push(v1::ConnectRequest message) {
  absl::MutexLock lock(&mutex_);
  if (messages_.size() >= kBound && Replaceable(message)) {
    const auto replaced = [&](const v1::ConnectRequest& old) {
      return Replaceable(old) && SameSource(old.progress(), message.progress());
    };
    messages_.erase(std::remove_if(messages_.begin(), messages_.end(), replaced), messages_.end());
  }
  if (message.has_steps_so_far()) {
    const auto older = [&](const v1::ConnectRequest& old) {
      return old.has_steps_so_far() && old.steps_so_far().job() == message.steps_so_far().job();
    };
    messages_.erase(std::remove_if(messages_.begin(), messages_.end(), older), messages_.end());
    messages_.push_front(std::move(message));
    return;
  }
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

void Outbox::Forget(const std::string& job, int64_t generation) {
  absl::MutexLock lock(&mutex_);
  const auto over = [&](const v1::ConnectRequest& message) {
    return message.has_progress() && message.progress().job() == job &&
           message.progress().generation() <= generation;
  };
  messages_.erase(std::remove_if(messages_.begin(), messages_.end(), over), messages_.end());
}

size_t Outbox::size() const {
  absl::MutexLock lock(&mutex_);
  return messages_.size();
}

void Outbox::Wake() {
  absl::MutexLock lock(&mutex_);
  woken_ = true;
}

}  // namespace stagewright
