#include "worker_daemon/daemon/gpu_metrics.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <utility>

namespace stagewright {
namespace {

// By family and the GPU's name.
std::map<std::pair<std::string, std::string>, double> Values(const GpuMetrics& metrics) {
  std::map<std::pair<std::string, std::string>, double> values;
  for (const prometheus::MetricFamily& family : metrics.Collect()) {
    for (const prometheus::ClientMetric& metric : family.metric) {
      EXPECT_EQ(metric.label.at(1).name, "uuid");
      values[{family.name, metric.label.at(0).value}] = metric.gauge.value;
    }
  }
  return values;
}

class GpuMetricsTest : public ::testing::Test {
 protected:
  GpuMetricsTest() {
    unsetenv("NVML_DOUBLE");
    auto nvml = Nvml::Open(NVML_DOUBLE_LIBRARY);
    EXPECT_TRUE(nvml.ok()) << nvml.status();
    if (nvml.ok()) metrics_ = std::make_unique<GpuMetrics>(*std::move(nvml));
  }
  std::unique_ptr<GpuMetrics> metrics_;
};

TEST_F(GpuMetricsTest, ShowsEachGpu) {
  ASSERT_NE(metrics_, nullptr);
  const auto values = Values(*metrics_);
  const double gib = 1024.0 * 1024 * 1024;
  const std::map<std::pair<std::string, std::string>, double> expected = {
      {{"stagewright_worker_gpu_memory_bytes", "Double A"}, 150 * gib},
      {{"stagewright_worker_gpu_memory_bytes", "Double B"}, 150 * gib},
      {{"stagewright_worker_gpu_memory_free_bytes", "Double A"}, 100 * gib},
      {{"stagewright_worker_gpu_memory_free_bytes", "Double B"}, 100 * gib + 1},
      {{"stagewright_worker_gpu_utilisation_ratio", "Double A"}, 0.40},
      {{"stagewright_worker_gpu_utilisation_ratio", "Double B"}, 0.41}};
  EXPECT_EQ(values, expected);
}

TEST_F(GpuMetricsTest, UtilisationThatIsNotToldIsLeftOut) {
  ASSERT_NE(metrics_, nullptr);
  setenv("NVML_DOUBLE", "slice", 1);
  const auto values = Values(*metrics_);
  EXPECT_EQ(values.size(), 5u);
  EXPECT_FALSE(values.contains({"stagewright_worker_gpu_utilisation_ratio", "Double B"}));
}

TEST_F(GpuMetricsTest, ADriverThatDoesNotAnswerLeavesAGap) {
  ASSERT_NE(metrics_, nullptr);
  setenv("NVML_DOUBLE", "lost", 1);
  EXPECT_TRUE(metrics_->Collect().empty());
  unsetenv("NVML_DOUBLE");
  EXPECT_EQ(metrics_->Collect().size(), 3u);
}

}  // namespace
}  // namespace stagewright
