#include "worker_daemon/device/memory_meter.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>

#include "absl/strings/str_cat.h"

#if STAGEWRIGHT_HAVE_CUDA
#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#endif

namespace stagewright {

struct MemoryMeter::Account {
  explicit Account(Bytes most) : limit(most) {}

  // Throws c10::OutOfMemoryError above the limit, with nothing taken.
  void Take(Bytes bytes) {
    const Bytes after = Bytes(now.fetch_add(bytes.count(), std::memory_order_relaxed)) + bytes;
    if (limit > 0 && after > limit) {
      now.fetch_sub(bytes.count(), std::memory_order_relaxed);
      Refuse(bytes, after - bytes);
      TORCH_CHECK_WITH(OutOfMemoryError, false, "the limit of ", limit.count(),
                       " bytes is reached");
    }
    int64_t before = peak.load(std::memory_order_relaxed);
    while (before < after.count() &&
           !peak.compare_exchange_weak(before, after.count(), std::memory_order_relaxed)) {
    }
    allocations.fetch_add(1, std::memory_order_relaxed);
    references.fetch_add(1, std::memory_order_relaxed);
  }

  void Refuse(Bytes asked, Bytes in_use) {
    refused.store(asked.count(), std::memory_order_relaxed);
    in_use_then.store(in_use.count(), std::memory_order_relaxed);
  }

  void Give(Bytes bytes) {
    now.fetch_sub(bytes.count(), std::memory_order_relaxed);
    Release();
  }

  void Release() {
    if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  const Bytes limit;
  std::atomic<int64_t> now = 0, peak = 0, refused = 0, in_use_then = 0;  // Bytes.
  std::atomic<int64_t> allocations = 0;
  std::atomic<int64_t> references = 1;  // The meter and every block.
};

namespace {

thread_local MemoryMeter::Account* current = nullptr;

// In front of every block; as long as LibTorch's alignment, which the block keeps.
struct alignas(c10::gAlignment) Header {
  MemoryMeter::Account* account = nullptr;  // Null: not counted.
  Bytes bytes = 0;
};
static_assert(sizeof(Header) == c10::gAlignment);

class CountingAllocator final : public c10::Allocator {
 public:
  // Takes the place of LibTorch's allocator, for good. Blocks that are there keep their deleter.
  static void Install() {
    static const bool installed = [] {
      c10::Allocator* const base = c10::GetCPUAllocator();
      if (base->raw_deleter() == nullptr) return false;  // Not LibTorch's: leave it in its place.
      base_ = base;
      c10::SetCPUAllocator(new CountingAllocator);  // As long as the process.
      return true;
    }();
    static_cast<void>(installed);
  }

  c10::DataPtr allocate(size_t size) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (size == 0) return {nullptr, nullptr, &Delete, cpu};
    MemoryMeter::Account* const account = current;
    const auto bytes = static_cast<Bytes>(size);
    if (account != nullptr) account->Take(bytes);
    void* const memory = AllocateBase(size, account);
    auto* const header = new (memory) Header{account, bytes};
    void* const block = header + 1;
    return {block, block, &Delete, cpu};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &Delete; }
  void copy_data(void* to, const void* from, size_t size) const override {
    default_copy_data(to, from, size);
  }

 private:
  static void* AllocateBase(size_t size, MemoryMeter::Account* account) {
    try {
      // What is too much with a header is also without one.
      const bool fits = size <= std::numeric_limits<size_t>::max() - sizeof(Header);
      return base_->raw_allocate(fits ? size + sizeof(Header) : size);
    } catch (const std::exception& error) {
      if (account != nullptr) {
        const auto bytes = static_cast<Bytes>(size);
        account->Refuse(bytes, Bytes(account->now.load(std::memory_order_relaxed)) - bytes);
        account->Give(bytes);
      }
      TORCH_CHECK_WITH(OutOfMemoryError, false, "the machine has no more memory");
    }
  }

  static void Delete(void* block) {
    if (block == nullptr) return;
    Header* const header = static_cast<Header*>(block) - 1;
    if (header->account != nullptr) header->account->Give(header->bytes);
    base_->raw_deallocate(header);
  }

  static c10::Allocator* base_;
};
c10::Allocator* CountingAllocator::base_ = nullptr;

}  // namespace

MemoryMeter::MemoryMeter(const std::string& torch_device, Bytes limit) {
  const c10::Device device(torch_device);
  if (device.is_cpu()) {
    CountingAllocator::Install();
    account_ = new Account(limit);
    return;
  }
  if (!device.is_cuda()) return;  // Nobody counts what others have.
  gpu_ = device.has_index() ? device.index() : 0;
#if STAGEWRIGHT_HAVE_CUDA
  // The first tensor on a GPU does that as well, but a job counts from before.
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  c10::cuda::CUDACachingAllocator::resetPeakStats(static_cast<c10::DeviceIndex>(gpu_));
#endif
}

MemoryMeter::~MemoryMeter() {
  if (account_ != nullptr) account_->Release();
}

MemoryFigures MemoryMeter::figures() const {
  if (account_ != nullptr) {
    return {.peak = Bytes(account_->peak.load(std::memory_order_relaxed)),
            .in_use = Bytes(account_->now.load(std::memory_order_relaxed)),
            .allocations = account_->allocations.load(std::memory_order_relaxed)};
  }
#if STAGEWRIGHT_HAVE_CUDA
  if (gpu_ < 0) return {};
  const auto stats =
      c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(gpu_));
  const auto& used = stats.allocated_bytes[0];  // Entry 0 is of all kinds of blocks together.
  return {.peak = Bytes(used.peak),
          .in_use = Bytes(used.current),
          .reserved = Bytes(stats.reserved_bytes[0].current),
          .allocations = stats.allocation[0].allocated};
#else
  return {};
#endif
}

MemoryMeter::Refusal MemoryMeter::refused() const {
  if (account_ == nullptr) return {};
  return {Bytes(account_->refused.load(std::memory_order_relaxed)),
          Bytes(account_->in_use_then.load(std::memory_order_relaxed))};
}

MemoryMeter::Scope::Scope(const MemoryMeter* meter) : before_(current) {
  current = meter != nullptr ? meter->account_ : nullptr;
}

MemoryMeter::Scope::~Scope() { current = before_; }

absl::Status OutOfMemory(const absl::Status& cause, const MemoryMeter& meter,
                         const MemoryExpectation& expected) {
  std::string figures = "out of memory: ";
  const MemoryMeter::Refusal refused = meter.refused();
  if (refused.asked > 0) absl::StrAppend(&figures, refused.asked, " bytes asked for, ");
  absl::StrAppend(&figures, refused.asked > 0 ? refused.in_use : meter.now(),
                  " bytes in use and at most ", meter.peak(),
                  " so far; the program's predicted peak is ", expected.predicted_peak, " bytes");
  if (expected.budget > 0)
    absl::StrAppend(&figures, ", the device's budget ", expected.budget, " bytes");
  return absl::ResourceExhaustedError(absl::StrCat(figures, "; ", cause.message()));
}

}  // namespace stagewright
