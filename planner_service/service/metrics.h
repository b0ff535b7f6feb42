// What operators see of the planner. Names follow Prometheus' conventions: base units, `_total`,
// `_seconds`.
#pragma once

#include <memory>
#include <string>

#include "absl/synchronization/mutex.h"
#include "common/base/status.h"
#include "planner_service/jobs/job.h"
#include "planner_service/jobs/planning_pool.h"
#include "planner_service/registry/worker_registry.h"

namespace stagewright {

// Thread-safe.
class PlannerMetrics {
 public:
  // Serves /metrics on `listen` (HOST:PORT; port 0 picks one). UNAVAILABLE if the port is taken.
  static absl::StatusOr<std::unique_ptr<PlannerMetrics>> Serve(const std::string& listen);
  virtual ~PlannerMetrics() = default;

  virtual void CountPlan(const std::string& planner, const std::string& result, double seconds) = 0;
  virtual void CountRequest(const std::string& method, const std::string& code) = 0;
  // Series of ended jobs are removed.
  virtual void ObserveJob(const Job& job) = 0;
  // Gauges read from their owners.
  virtual void Sample(const PlanningPool& pool, const WorkerRegistry& registry) = 0;
  // Whether what happens to jobs can be stored.
  virtual void ShowStore(bool writable) = 0;
  virtual std::string address() const = 0;  // Where it listens.
};

}  // namespace stagewright
