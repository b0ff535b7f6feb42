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
  std::vector<v1::DeviceKind> kinds;  // Measured; one per kind of device.
  std::vector<int32_t> kind_of;       // Per device.
};

// `spec` is "cpu:N", "cuda:all" or a list "cuda:0,2". INVALID_ARGUMENT names what is wrong: a spec
// of another form, or a GPU that is not there or that this build cannot use. Measures rates, for
// about a tenth of a second per kind.
absl::StatusOr<Offer> OfferDevices(const std::string& spec, Bytes memory_per_device);

}  // namespace stagewright
