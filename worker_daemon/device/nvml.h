// What NVIDIA's driver knows of the GPUs of a machine, from NVML, its management library.
//
// The library belongs to the driver, so it is loaded when asked for and nothing links with it: a
// build without CUDA can use it, and a machine without a driver gets an error.
//
// Reference: NVML API reference guide, "Device Queries".
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/units.h"

namespace stagewright {

// Why a GPU runs slower than it could.
enum class GpuSlowdown { kHeat, kPowerCap, kPowerBrake, kHardware, kClockSetting };

struct DriverReading {
  std::string version;  // "580.82.07"
  int cuda = 0;         // The newest CUDA that it runs: 13000 is 13.0; 0: it does not tell.
};

struct GpuReading {
  std::string name;                    // "NVIDIA H200"
  std::string uuid;                    // "GPU-..."; the same whichever GPUs CUDA is allowed to see.
  Bytes memory = 0;                    // In all.
  Bytes free_memory = 0;               // What no process has taken.
  int utilisation_percent = 0;         // In the last moments; -1 where the GPU does not tell.
  int clock_mhz = 0;                   // Its multiprocessors' now; 0 where the GPU does not tell.
  int highest_clock_mhz = 0;           // The highest they have; 0 where the GPU does not tell.
  std::vector<GpuSlowdown> slowdowns;  // What slows it down now, ascending.
};

// Thread-safe.
class Nvml {
 public:
  // UNAVAILABLE if there is no such library, it lacks a function, or it finds no driver.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(
      const std::string& library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // All GPUs that the driver shows, in its order, which need not be CUDA's. UNAVAILABLE names the
  // GPU and the query that failed.
  absl::StatusOr<std::vector<GpuReading>> Gpus() const;

  // UNAVAILABLE if it does not tell its version.
  absl::StatusOr<DriverReading> Driver() const;

  // Whether one GPU reads the memory of another directly, by their places in Gpus(). Nothing where
  // the driver does not tell.
  std::optional<bool> HasPeerAccess(unsigned from, unsigned to) const;

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);
  absl::StatusOr<GpuReading> Read(unsigned index) const;

  const std::unique_ptr<Functions> functions_;
};

}  // namespace stagewright
