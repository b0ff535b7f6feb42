#include "planner_service/service/rpc.h"

#include <utility>

namespace stagewright {

int64_t OpenStreams::Add(std::function<void()> close) {
  {
    absl::MutexLock lock(&mutex_);
    if (!closing_) {
      streams_[next_] = std::move(close);
      return next_++;
    }
  }
  close();
  return 0;
}

void OpenStreams::Remove(int64_t id) {
  absl::MutexLock lock(&mutex_);
  streams_.erase(id);
}

size_t OpenStreams::size() {
  absl::MutexLock lock(&mutex_);
  return streams_.size();
}

void OpenStreams::CloseAll() {
  // Under the lock, so that no stream can be destroyed between being found and being closed.
  absl::MutexLock lock(&mutex_);
  closing_ = true;
  for (auto& [id, close] : streams_) close();
  streams_.clear();
}

}  // namespace stagewright
