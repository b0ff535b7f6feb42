#include "worker_daemon/daemon/gpu_metrics.h"

#include <string>
#include <utility>

namespace stagewright {
namespace {

prometheus::MetricFamily GaugeFamily(const std::string& name, const std::string& help) {
  prometheus::MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = prometheus::MetricType::Gauge;
  return family;
}

void Add(prometheus::MetricFamily& family, const GpuReading& gpu, double value) {
  prometheus::ClientMetric metric;
  metric.label = {{"gpu", gpu.name}, {"uuid", gpu.uuid}};
  metric.gauge.value = value;
  family.metric.push_back(std::move(metric));
}

}  // namespace

std::vector<prometheus::MetricFamily> GpuMetrics::Collect() const {
  const auto gpus = nvml_->Gpus();
  if (!gpus.ok()) return {};
  auto memory = GaugeFamily("stagewright_worker_gpu_memory_bytes", "Memory of a GPU, in all.");
  auto free = GaugeFamily("stagewright_worker_gpu_memory_free_bytes",
                          "Memory of a GPU that no process has taken.");
  auto utilisation = GaugeFamily("stagewright_worker_gpu_utilisation_ratio",
                                 "Share of the last moments in which a GPU ran kernels.");
  for (const GpuReading& gpu : *gpus) {
    Add(memory, gpu, static_cast<double>(gpu.memory));
    Add(free, gpu, static_cast<double>(gpu.free_memory));
    if (gpu.utilisation_percent >= 0) Add(utilisation, gpu, gpu.utilisation_percent / 100.0);
  }
  return {memory, free, utilisation};
}

}  // namespace stagewright
