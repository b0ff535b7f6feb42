// What operators see of a worker.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/program/program.h"
#include "worker_daemon/executor/device_job.h"

namespace stagewright {

// Thread-safe.
class WorkerMetrics {
 public:
  // Serves /metrics on `listen` (HOST:PORT; port 0 picks one). UNAVAILABLE if the port is taken.
  static absl::StatusOr<std::unique_ptr<WorkerMetrics>> Serve(const std::string& listen);
  virtual ~WorkerMetrics() = default;

  virtual void SetConnected(bool connected) = 0;
  virtual void ObserveStep(const std::string& job, const Program& program,
                           const StepReport& report) = 0;
  // A device has saved its share of a checkpoint, for which its training waited so long.
  virtual void ObserveCheckpoint(const std::string& job, absl::Duration stall) = 0;
  // What the program predicts, and what the allocator measured so far.
  virtual void SetPeakMemory(const std::string& job, const std::string& device, Bytes bytes) = 0;
  virtual void SetMeasuredMemory(const std::string& job, const std::string& device,
                                 const MemoryFigures& memory) = 0;
  // Removes the series of a job that has ended.
  virtual void Forget(const std::string& job) = 0;
  virtual std::string address() const = 0;  // Where it listens.
};

}  // namespace stagewright
