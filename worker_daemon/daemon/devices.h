// The devices a worker offers.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/units.h"
#include "stagewright/v1/topology.pb.h"

namespace stagewright {

// How the memory of GPUs travels between devices of a job.
enum class DeviceMemoryWay {
  kAuto,  // By NCCL where all devices can, else through host memory.
  kNccl,  // By NCCL, or the job fails.
  kHost,  // Through host memory.
};

struct OfferedDevice {
  std::string name;          // "cpu0", "cuda1"
  std::string torch_device;  // "cpu", "cuda:1"
  Bytes memory = 0;
  Bytes memory_limit = 0;  // See DeviceJob.
  DeviceMemoryWay memory_way = DeviceMemoryWay::kAuto;
};

struct Offer {
  std::vector<OfferedDevice> devices;
  std::vector<v1::DeviceKind> kinds;  // One per kind of device.
  std::vector<int32_t> kind_of;       // Per device.
};

struct DevicesAsked {
  std::string spec = "cpu:1";  // "cpu:N", "cuda:all" or a list "cuda:0,2".
  // All are taken to be of this kind (topology/presets.h). Empty: what they do is measured, for
  // about a tenth of a second per kind of GPU, and some seconds for processors.
  std::string kind;
  // 0: CPU devices share half of the machine's memory; GPUs have theirs.
  Bytes memory_per_device = 0;
};

// INVALID_ARGUMENT names a spec of another form; NOT_FOUND a kind that there is not. Looks at no
// device.
absl::Status CheckDevices(const DevicesAsked& asked);

// Errors of CheckDevices; INVALID_ARGUMENT names a GPU that is not there or that this build cannot
// use.
absl::StatusOr<Offer> OfferDevices(const DevicesAsked& asked);

}  // namespace stagewright
