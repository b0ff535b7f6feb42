#include "clients/cli/view/gpu_view.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace stagewright::cli {

std::string CudaVersionText(int32_t version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

std::string NcclVersionText(int32_t version) {
  return absl::StrCat(version / 10000, ".", version % 10000 / 100, ".", version % 100);
}

std::string SlowdownName(v1::GpuSlowdown slowdown) {
  switch (slowdown) {
    case v1::GPU_SLOWDOWN_HEAT:
      return "heat";
    case v1::GPU_SLOWDOWN_POWER_CAP:
      return "power cap";
    case v1::GPU_SLOWDOWN_POWER_BRAKE:
      return "power brake";
    case v1::GPU_SLOWDOWN_HARDWARE:
      return "hardware";
    case v1::GPU_SLOWDOWN_CLOCK_SETTING:
      return "clock setting";
    default:
      return "unknown";
  }
}

nlohmann::json GpuMachineJson(const v1::GpuMachine& machine) {
  const auto version = [](int32_t number, std::string (*text)(int32_t)) {
    return number == 0 ? nlohmann::json() : nlohmann::json(text(number));
  };
  nlohmann::json gpus = nlohmann::json::array();
  for (const v1::Gpu& gpu : machine.gpus()) {
    nlohmann::json slowdowns = nlohmann::json::array();
    for (const int slowdown : gpu.slowdowns())
      slowdowns.push_back(SlowdownName(static_cast<v1::GpuSlowdown>(slowdown)));
    nlohmann::json apart = nlohmann::json::array();
    for (const int32_t other : gpu.no_peer_access()) apart.push_back(other);
    gpus.push_back({{"name", gpu.name()},
                    {"uuid", gpu.uuid()},
                    {"memory_bytes", gpu.memory_bytes()},
                    {"clock_mhz", gpu.clock_mhz()},
                    {"highest_clock_mhz", gpu.highest_clock_mhz()},
                    {"slowdowns", std::move(slowdowns)},
                    {"no_peer_access", std::move(apart)}});
  }
  return {{"driver_version", machine.driver_version()},
          {"driver_cuda", version(machine.driver_cuda(), CudaVersionText)},
          {"runtime_cuda", version(machine.runtime_cuda(), CudaVersionText)},
          {"nccl", version(machine.nccl(), NcclVersionText)},
          {"trouble", machine.trouble()},
          {"gpus", std::move(gpus)}};
}

}  // namespace stagewright::cli
