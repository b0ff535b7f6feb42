#include "worker_daemon/daemon/gpu_machine.h"

#include <vector>

#include "worker_daemon/device/accelerators.h"
#include "worker_daemon/device/nvml.h"
#if STAGEWRIGHT_HAVE_NCCL
#include "worker_daemon/transport/nccl/nccl_mover.h"
#endif

namespace stagewright {
namespace {

v1::GpuSlowdown ToProto(GpuSlowdown slowdown) {
  switch (slowdown) {
    case GpuSlowdown::kHeat:
      return v1::GPU_SLOWDOWN_HEAT;
    case GpuSlowdown::kPowerCap:
      return v1::GPU_SLOWDOWN_POWER_CAP;
    case GpuSlowdown::kPowerBrake:
      return v1::GPU_SLOWDOWN_POWER_BRAKE;
    case GpuSlowdown::kHardware:
      return v1::GPU_SLOWDOWN_HARDWARE;
    case GpuSlowdown::kClockSetting:
      return v1::GPU_SLOWDOWN_CLOCK_SETTING;
  }
  return v1::GPU_SLOWDOWN_UNSPECIFIED;
}

absl::Status Describe(const Nvml& nvml, v1::GpuMachine& machine) {
  ASSIGN_OR_RETURN(const DriverReading driver, nvml.Driver());
  machine.set_driver_version(driver.version);
  machine.set_driver_cuda(driver.cuda);
  ASSIGN_OR_RETURN(const std::vector<GpuReading> readings, nvml.Gpus());
  for (size_t i = 0; i < readings.size(); ++i) {
    const GpuReading& reading = readings[i];
    v1::Gpu& gpu = *machine.add_gpus();
    gpu.set_name(reading.name);
    gpu.set_uuid(reading.uuid);
    gpu.set_memory_bytes(reading.memory.count());
    gpu.set_clock_mhz(reading.clock_mhz);
    gpu.set_highest_clock_mhz(reading.highest_clock_mhz);
    for (const GpuSlowdown slowdown : reading.slowdowns) gpu.add_slowdowns(ToProto(slowdown));
    for (size_t j = 0; j < readings.size(); ++j) {
      const bool apart =
          j != i &&
          !nvml.HasPeerAccess(static_cast<unsigned>(i), static_cast<unsigned>(j)).value_or(true);
      if (apart) gpu.add_no_peer_access(static_cast<int32_t>(j));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<v1::GpuMachine> DescribeGpuMachine(bool needed, const std::string& library) {
  v1::GpuMachine machine;
  machine.set_runtime_cuda(CudaRuntimeVersion());
#if STAGEWRIGHT_HAVE_NCCL
  machine.set_nccl(NcclVersion());
#endif
  const auto nvml = Nvml::Open(library);
  const absl::Status described = nvml.ok() ? Describe(**nvml, machine) : nvml.status();
  if (described.ok()) return machine;
  if (!nvml.ok() && !needed) return std::nullopt;
  machine.set_trouble(std::string(described.message()));
  return machine;
}

}  // namespace stagewright
