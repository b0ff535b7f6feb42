// The transports of this worker's devices: for GPUs with NCCL, in a build that has it.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker_daemon/daemon/devices.h"
#include "worker_daemon/transport/identity.h"
#include "worker_daemon/transport/routing/routing_transport.h"

namespace stagewright {

// A transport for `device`, whose memory is that of a GPU or of the host; `key` is that of
// UcxOptions. INVALID_ARGUMENT for a torch_device of another kind; FAILED_PRECONDITION if its way
// is NCCL in a build without it; errors of WithNccl and RoutingTransport::Create.
absl::StatusOr<std::unique_ptr<RoutingTransport>> MakeDeviceTransport(
    const TransportIdentity& identity, const OfferedDevice& device, const std::string& key);

// Which of the job's devices `self` connects to: those that its part of the job talks to, `peers`,
// and if it has an accelerator all others that have one, because these are one group whether they
// talk to each other or not. Those that it exchanges the tensors of stages with, `neighbours`, are
// told as such. `addresses` are those of all devices, its own included.
std::vector<Transport::Peer> PeersToConnect(const RoutingTransport& self,
                                            const std::vector<int>& peers,
                                            const std::vector<int>& neighbours,
                                            const std::vector<Transport::Peer>& addresses);

// How the memory of `device` travels once `transport` is connected, for the log: "by NCCL". Nothing
// for a CPU. FAILED_PRECONDITION if its way is NCCL and that cannot be.
absl::StatusOr<std::string> MemoryWayTaken(RoutingTransport& transport,
                                           const OfferedDevice& device);

}  // namespace stagewright
