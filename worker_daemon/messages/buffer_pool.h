// Host memory for messages that is used again and again, so that a step allocates none: fresh
// memory costs a page fault for every 4 KiB.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>

#include "common/base/units.h"

namespace stagewright {

// Thread-safe. Buffers may outlive the pool.
class BufferPool {
 public:
  // Keeps at most `counts[size]` buffers of a size when they are not in use; makes them when they
  // are first needed. `pinned`: in memory that an accelerator can copy from and to by itself.
  explicit BufferPool(std::map<Bytes, int32_t> counts, bool pinned = false);

  // A tensor of `bytes` uninitialised bytes. Its memory goes back when the last tensor that refers
  // to it dies. Never waits: what is beyond the counts is allocated and freed again.
  at::Tensor Take(Bytes bytes);

  int64_t allocations() const;  // So far.

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace stagewright
