#include "worker_daemon/messages/buffer_pool.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "absl/synchronization/mutex.h"

namespace stagewright {

struct BufferPool::State {
  struct OfSize {
    size_t count = 0;
    std::vector<at::Tensor> free;
  };

  at::Tensor TakeFree(Bytes bytes) {
    absl::MutexLock lock(&mutex);
    const auto found = sizes.find(bytes);
    if (found == sizes.end() || found->second.free.empty()) {
      ++allocations;
      return {};
    }
    at::Tensor buffer = std::move(found->second.free.back());
    found->second.free.pop_back();
    return buffer;
  }

  void GiveBack(at::Tensor buffer) {
    absl::MutexLock lock(&mutex);
    const auto found = sizes.find(Bytes(buffer.numel()));
    if (found != sizes.end() && found->second.free.size() < found->second.count)
      found->second.free.push_back(std::move(buffer));
  }

  bool pinned = false;
  absl::Mutex mutex;
  std::map<Bytes, OfSize> sizes ABSL_GUARDED_BY(mutex);
  int64_t allocations ABSL_GUARDED_BY(mutex) = 0;
};

BufferPool::BufferPool(std::map<Bytes, int32_t> counts, bool pinned)
    : state_(std::make_shared<State>()) {
  state_->pinned = pinned;
  absl::MutexLock lock(&state_->mutex);
  for (const auto& [bytes, count] : counts)
    state_->sizes[bytes].count = static_cast<size_t>(std::max(count, 0));
}

at::Tensor BufferPool::Take(Bytes bytes) {
  if (bytes == 0) return at::empty({0}, at::kByte);
  at::Tensor buffer = state_->TakeFree(bytes);
  if (!buffer.defined()) {
    buffer = at::empty({bytes.count()},
                       at::TensorOptions().dtype(at::kByte).pinned_memory(state_->pinned));
  }
  void* const data = buffer.data_ptr();
  return at::from_blob(
      data, {bytes.count()},
      [state = state_, buffer](void*) mutable { state->GiveBack(std::move(buffer)); }, at::kByte);
}

int64_t BufferPool::allocations() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->allocations;
}

}  // namespace stagewright
