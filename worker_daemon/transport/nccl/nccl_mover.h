// NCCL as the mover of an ArrangedTransport: the thin layer that calls it. Built only where CUDA's
// runtime and NCCL are (cmake/Accelerators.cmake), as a library of its own.
//
// One communicator for all devices of a job generation carries sends and receives; each list of
// devices that reduces gets one of its own (ncclCommSplit), with a stream of its own, so that a
// reduction does not hold up messages. All are opened and used once before the first step: to open
// one takes memory, for which CUDA may wait until the GPU has done all it has, and what it has may
// wait for a peer that opens one, too. Communicators are created without blocking
// (ncclConfig_t::blocking = 0) and polled until ready; ncclCommGetAsyncError is asked whenever
// something is under way; after an error or an abort every device ends its own with ncclCommAbort,
// which stops kernels that wait for a peer. Within a process NCCL writes into the receiver's memory
// from the sender's kernel, so that memory of an aborted receive may still be written to until all
// devices of the process have aborted.
//
// References: NCCL user guide, "Creating a communicator", "Point-to-point communication", "Group
// calls" and "Fault tolerance".
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_daemon/transport/arranged/device_mover.h"
#include "worker_daemon/transport/routing/routing_transport.h"

namespace stagewright {

struct NcclOptions {
  int cuda_device = 0;  // CUDA's index.
  // The cudaStream_t on which the calling thread queues what reads and writes the memory it sends
  // and receives; null, and what an empty function stands for, is CUDA's default stream.
  std::function<void*()> stream = {};
};

// OK if this machine has a GPU that CUDA can use; otherwise FAILED_PRECONDITION with the reason.
absl::Status NcclUsable();

// The version of the library that is loaded: 22809 is 2.28.9; 0 if it does not tell.
int NcclVersion();

absl::StatusOr<std::unique_ptr<DeviceMover>> MakeNcclMover(const NcclOptions& options);

// Whether several devices of a job may use one GPU: NCCL_MULTI_RANK_GPU_ENABLE=1 is in the
// environment, and NCCL is 2.30 or later; earlier ones do not know it and refuse.
bool GpusMayBeShared();

// The name of a GPU among all in the world. NCCL refuses two devices on one GPU, so they get no
// common communicator (RoutingTransport), unless GpusMayBeShared(): then each call returns another
// name.
absl::StatusOr<std::string> AcceleratorName(int cuda_device);

// The options for a RoutingTransport that uses NCCL: both of the above, on top of `options`.
absl::StatusOr<RoutingOptions> WithNccl(const NcclOptions& nccl, RoutingOptions options = {});

}  // namespace stagewright
