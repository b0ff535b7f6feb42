// What operators see of the planner. Names follow Prometheus' conventions: base units, `_total`,
// `_seconds`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "planner_service/jobs/job.h"
#include "planner_service/store/timed_store.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright {

// What is read from its owners now and then.
struct PlannerSample {
  int queued_plans = 0;
  int64_t rejected_plans = 0;  // Since the start.
  // Free ones, for a job now; the last two are of those that no job holds.
  int64_t free_devices = 0, held_devices = 0, cordoned_devices = 0, quarantined_devices = 0;
  std::vector<v1::Worker> workers;
  int64_t cached_plan_bytes = 0;
  int64_t state_bytes = 0, state_free_bytes = 0;  // 0: not known.
  int64_t audit_failures = 0;                     // Since the start.
};

// Thread-safe.
class PlannerMetrics {
 public:
  // Serves /metrics on `listen` (HOST:PORT; port 0 picks one). UNAVAILABLE if the port is taken.
  static absl::StatusOr<std::unique_ptr<PlannerMetrics>> Serve(const std::string& listen);
  virtual ~PlannerMetrics() = default;

  // A search that ended; `source`: "call" or "job".
  virtual void CountPlan(const std::string& planner, const std::string& result,
                         const std::string& source, double seconds) = 0;
  // What a question to the plan cache was: "hit", "shared" with another in flight, or "miss".
  virtual void CountCacheUse(const std::string& result) = 0;
  virtual void CountCall(const std::string& method, const std::string& code, double seconds) = 0;
  // So many more calls of the method are open.
  virtual void CountOpen(const std::string& method, int more) = 0;
  virtual void CountEvent(const Event& event) = 0;
  // Series of ended jobs are removed.
  virtual void ObserveJob(const Job& job) = 0;
  virtual void ForgetJob(JobState state) = 0;
  // So many jobs had ended so when the planner started.
  virtual void CountEndedBefore(JobState state, int64_t jobs) = 0;
  virtual void Sample(const PlannerSample& sample) = 0;
  // Whether what happens to jobs can be stored.
  virtual void ShowStore(bool writable) = 0;
  virtual void CountStoreCall(const StoreCall& call) = 0;
  virtual std::string address() const = 0;  // Where it listens.
};

}  // namespace stagewright
