// What NVIDIA's driver knows of the GPUs of a machine, from NVML, its management library.
//
// The library belongs to the driver, so it is loaded when asked for and nothing links with it: a
// build without CUDA can use it, and a machine without a driver gets an error.
//
// Reference: NVML API reference guide, "Device Queries".
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/units.h"

namespace stagewright {

struct GpuReading {
  std::string name;             // "NVIDIA H200"
  std::string uuid;             // "GPU-..."; the same whichever GPUs CUDA is allowed to see.
  Bytes memory = 0;             // In all.
  Bytes free_memory = 0;        // What no process has taken.
  int utilisation_percent = 0;  // In the last moments; -1 where the GPU does not tell.
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

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);
  absl::StatusOr<GpuReading> Read(unsigned index) const;

  const std::unique_ptr<Functions> functions_;
};

}  // namespace stagewright
