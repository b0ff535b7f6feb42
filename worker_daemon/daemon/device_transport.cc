#include "worker_daemon/daemon/device_transport.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#if STAGEWRIGHT_HAVE_NCCL
#include "worker_daemon/torch/current_stream.h"
#include "worker_daemon/transport/nccl/nccl_mover.h"
#endif

namespace stagewright {

absl::StatusOr<std::unique_ptr<RoutingTransport>> MakeDeviceTransport(
    const TransportIdentity& identity, const OfferedDevice& device, const std::string& key) {
  RoutingOptions options;
  options.ucx.key = key;
  absl::string_view name = device.torch_device;
  if (name == "cpu") return RoutingTransport::Create(identity, std::move(options));
  int gpu = -1;
  if (!absl::ConsumePrefix(&name, "cuda:") || !absl::SimpleAtoi(name, &gpu)) {
    return absl::InvalidArgumentError(
        absl::StrCat("device ", device.name, ": no transport for \"", device.torch_device, "\""));
  }
  if (device.memory_way == DeviceMemoryWay::kHost)
    return RoutingTransport::Create(identity, std::move(options));
#if STAGEWRIGHT_HAVE_NCCL
  const auto stream = [torch_device = device.torch_device] { return CurrentStream(torch_device); };
  auto with_nccl = WithNccl({.cuda_device = gpu, .stream = stream}, std::move(options));
  if (!with_nccl.ok()) return Annotate(with_nccl.status(), absl::StrCat("device ", device.name));
  options = *std::move(with_nccl);
#else
  if (device.memory_way == DeviceMemoryWay::kNccl) {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", device.name, ": this worker was built without NCCL"));
  }
#endif
  return RoutingTransport::Create(identity, std::move(options));
}

absl::StatusOr<std::string> MemoryWayTaken(RoutingTransport& transport,
                                           const OfferedDevice& device) {
  if (device.torch_device == "cpu") return "";
  if (transport.ForDeviceMemory({transport.device()}) != nullptr) return "by NCCL";
  if (device.memory_way == DeviceMemoryWay::kNccl) {
    return absl::FailedPreconditionError(absl::StrCat(
        "device ", device.name,
        ": its memory cannot travel by NCCL, which needs a GPU of its own for each of a job's ",
        "devices; --device-transport auto goes through host memory instead"));
  }
  return "through host memory";
}

std::vector<Transport::Peer> PeersToConnect(const RoutingTransport& self,
                                            const std::vector<int>& peers,
                                            const std::vector<int>& neighbours,
                                            const std::vector<Transport::Peer>& addresses) {
  const auto contains = [](const std::vector<int>& devices, int device) {
    return std::find(devices.begin(), devices.end(), device) != devices.end();
  };
  std::vector<Transport::Peer> found;
  for (const Transport::Peer& peer : addresses) {
    if (peer.device == self.device()) continue;
    if (!contains(peers, peer.device) &&
        !(self.has_accelerator() && RoutingTransport::HasAccelerator(peer.address)))
      continue;
    found.push_back({peer.device, peer.address, contains(neighbours, peer.device)});
  }
  return found;
}

}  // namespace stagewright
