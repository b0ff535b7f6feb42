// What a user asked for: what is trained, on what data, how, for how long and by which plan.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/strategy/strategy.h"
#include "common/training/training_spec.h"
#include "planner_service/planner/planner.h"

namespace stagewright {

// What a job records whose plan is compared with a single device.
struct RecordsRequest {
  int64_t steps = 0;         // The job ends after them; 0: nothing is recorded.
  std::string compare_with;  // Output path of a job that has recorded them.
};

// What becomes of a job that loses a worker and has restarts left.
enum class LossPolicy {
  kShrink,  // It goes on with what is left; waits for devices only if they cannot hold it.
  kWait,    // It waits for as many devices as it had.
  kFail,
};

// Whether a running job gets more devices when some become free.
enum class GrowthPolicy {
  kBack,  // As many as it asked for, or had at most.
  kFree,  // Any, up to as many as it asked for.
  kNone,
};

// Priorities are at most so high, and as low.
inline constexpr int32_t kMostPriority = 1000;

struct JobRequest {
  std::shared_ptr<const Graph> graph;
  // The graph for samples of other shapes (common/graph/lengths.h); never null.
  std::shared_ptr<const std::vector<Graph>> lengths = std::make_shared<const std::vector<Graph>>();
  std::string weights_path, data_path, output_path;
  std::string evaluation_data_path;  // Empty: nothing is evaluated.
  TrainingSpec training;
  int64_t mini_batch = 0;
  int64_t steps = 0;  // Exactly one of steps and epochs is positive.
  int64_t epochs = 0;
  std::string planner;  // Empty: the default.
  PlanOptions options;
  std::optional<Strategy> strategy;  // Instead of planning.
  int32_t num_devices = 0;           // 0: all that are free.
  // "worker/device", sorted: those that a plan by hand names, if it names all of its devices. The
  // job runs on these and no others.
  std::vector<std::string> named_devices;
  // The plan was found for devices that need not be there: the job runs on the first that are free
  // if none of `named_devices` is, and its strategy on as many as that needs.
  bool found = false;
  absl::Duration step_timeout;  // 0: the default.
  int32_t max_restarts = 0;
  LossPolicy on_loss = LossPolicy::kShrink;
  GrowthPolicy grow = GrowthPolicy::kBack;
  int32_t priority = 0;
  bool preemptible = false;  // For jobs of higher priority.
  RecordsRequest records;
};

// INVALID_ARGUMENT names the field, as the wire calls it and with "spec." before it, and what is
// wrong with it, also in the plan that a job brings. O(graph and plan): not under a lock, and a
// plan may be made to take seconds.
absl::Status Check(const JobRequest& request);

// How many devices its plan says that it is for; 0: it does not.
size_t PlannedDevices(const JobRequest& request);

// INVALID_ARGUMENT: the job is to have another number than that.
absl::Status WrongNumber(const JobRequest& request);

}  // namespace stagewright
