// What operators see of a worker's GPUs: memory and utilisation, read when they are asked for.
#pragma once

#include <prometheus/client_metric.h>
#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <memory>
#include <utility>
#include <vector>

#include "worker_daemon/device/nvml.h"

namespace stagewright {

// Gauges with the labels gpu (its name) and uuid, of all GPUs that the driver shows, whether the
// worker offers them or not: stagewright_worker_gpu_memory_bytes, ..._gpu_memory_free_bytes and
// ..._gpu_utilisation_ratio, the last only for GPUs that tell it. Thread-safe.
class GpuMetrics : public prometheus::Collectable {
 public:
  explicit GpuMetrics(std::unique_ptr<Nvml> nvml) : nvml_(std::move(nvml)) {}

  // Empty while the driver does not answer: a gap in the series, no made-up value.
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::unique_ptr<Nvml> nvml_;
};

}  // namespace stagewright
