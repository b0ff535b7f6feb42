#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "tests/worker_daemon/support/tested_accelerator.h"
#include "tests/worker_daemon/support/transports/device_memory_transport.h"
#include "worker_daemon/torch/current_stream.h"
#if STAGEWRIGHT_HAVE_NCCL
#include "tests/worker_daemon/transport/shared_gpus.h"
#include "worker_daemon/transport/nccl/nccl_mover.h"
#endif

namespace stagewright::testing {

absl::StatusOr<TransportFactory> TestedMemoryTransports() {
#if STAGEWRIGHT_HAVE_NCCL
  constexpr int kMostDevices = 4;  // No test has more.
  RETURN_IF_ERROR(PrepareSharedGpus(kMostDevices));
  RETURN_IF_ERROR(TestedAccelerator(0).status());
  return [](const TransportIdentity& identity) -> absl::StatusOr<std::unique_ptr<Transport>> {
    ASSIGN_OR_RETURN(const std::string device, TestedAccelerator(identity.device));
    NcclOptions nccl{.stream = [device] { return CurrentStream(device); }};
    if (!absl::SimpleAtoi(absl::StripPrefix(device, "cuda:"), &nccl.cuda_device))
      return absl::InternalError(device);
    ASSIGN_OR_RETURN(RoutingOptions options, WithNccl(nccl));
    ASSIGN_OR_RETURN(auto whole, RoutingTransport::Create(identity, std::move(options)));
    return RequireDeviceMemory(std::move(whole));
  };
#else
  return absl::FailedPreconditionError("built without NCCL");
#endif
}

}  // namespace stagewright::testing
