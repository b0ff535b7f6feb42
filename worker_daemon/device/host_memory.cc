#include "worker_daemon/device/host_memory.h"

#include <malloc.h>

#include <limits>

#if STAGEWRIGHT_HAVE_CUDA
#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#endif

namespace stagewright {

void KeepFreedHostMemory() {
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_MAX, 0);  // Blocks of their own go back when they are freed.
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, 64 << 20);
}

void ReleaseFreedMemory() {
  malloc_trim(0);
#if STAGEWRIGHT_HAVE_CUDA
  if (at::globalContext().hasCUDA() && c10::cuda::CUDACachingAllocator::get()->initialized())
    c10::cuda::CUDACachingAllocator::emptyCache();
#endif
}

}  // namespace stagewright
