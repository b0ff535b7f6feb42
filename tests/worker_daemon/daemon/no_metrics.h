// Metrics that nobody reads, for tests that look at what is observed.
#pragma once

#include <string>

#include "worker_daemon/daemon/metrics.h"

namespace stagewright::testing {

class NoMetrics : public WorkerMetrics {
 public:
  void SetConnected(bool) override {}
  void ObserveStep(const std::string&, const Program&, const StepReport&) override {}
  void ObserveCheckpoint(const std::string&, absl::Duration) override {}
  void SetPeakMemory(const std::string&, const std::string&, Bytes) override {}
  void SetMeasuredMemory(const std::string&, const std::string&, const MemoryFigures&) override {}
  void Forget(const std::string&) override {}
  std::string address() const override { return ""; }
};

}  // namespace stagewright::testing
