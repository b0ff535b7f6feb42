// Bytes that the tensors of a job take on one device: now and at most since the meter was made.
//
// On a CPU all devices of a daemon share one heap, so the process gets an allocator that wraps
// LibTorch's own and charges every block to the meter of the thread that asks for it (Scope), and
// gives it back to the same meter whichever thread frees it. Threads without a scope, those that
// LibTorch starts inside an operator among them, are not counted; nor is memory that libraries take
// beside tensors. On a GPU the figures are those of LibTorch's caching allocator, for the whole
// device: bytes of blocks in use, not of those it keeps for later.
//
// No LibTorch in this header.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "common/base/units.h"

namespace stagewright {

// What an allocator did for a job on one device. 0 where LibTorch does not tell.
struct MemoryFigures {
  Bytes peak = 0;           // Most bytes of tensors at once so far.
  Bytes in_use = 0;         // Now.
  Bytes reserved = 0;       // Taken from a GPU, in use or kept for later. A heap's are nobody's.
  int64_t allocations = 0;  // Blocks handed out so far.
};

class MemoryMeter {
 public:
  struct Account;  // What a CPU device holds; lives until its last block is freed.

  // The meter of the device that LibTorch calls `torch_device` ("cpu", "cuda:1"). With a `limit`
  // above 0 an allocation on a CPU that would take the device above it fails as if memory had run
  // out. GPUs have a limit of their own. Throws what LibTorch throws for names of no device.
  explicit MemoryMeter(const std::string& torch_device, Bytes limit = 0);
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  // Safe from any thread; no locks on a CPU.
  MemoryFigures figures() const;
  Bytes now() const { return figures().in_use; }
  Bytes peak() const { return figures().peak; }
  // The last allocation that failed: what it asked for and what was in use then. Nothing asked for:
  // none has failed, or LibTorch does not tell.
  struct Refusal {
    Bytes asked = 0;
    Bytes in_use = 0;
  };
  Refusal refused() const;

  // Charges what the calling thread allocates to `meter` (null: to none) until it ends. Scopes of a
  // thread nest.
  class Scope {
   public:
    explicit Scope(const MemoryMeter* meter);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Account* const before_;
  };

 private:
  Account* account_ = nullptr;  // Null on a GPU.
  int gpu_ = -1;
};

// What a device should hold.
struct MemoryExpectation {
  Bytes predicted_peak = 0;  // What its program was predicted to take.
  Bytes budget = 0;          // What the device has; 0: unknown.
};

// A RESOURCE_EXHAUSTED `cause` with the figures: bytes asked for, in use and expected.
absl::Status OutOfMemory(const absl::Status& cause, const MemoryMeter& meter,
                         const MemoryExpectation& expected);

}  // namespace stagewright
