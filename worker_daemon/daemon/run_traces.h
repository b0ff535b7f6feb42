// What a run tells of its steps besides their figures: actions and, where asked for, operators.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "absl/synchronization/mutex.h"
#include "common/base/ids.h"
#include "stagewright/v1/worker_service.pb.h"
#include "worker_daemon/executor/device_job.h"

namespace stagewright {

// Thread-safe. The steps that Prepare names, and those of the newest Ask: never more than
// kMostSteps in a row, so that what is sent and kept is bounded.
class RunTraces {
 public:
  static constexpr int32_t kMostSteps = 16;
  // Operators are timed in the last steps asked for only: that takes time itself, which is then not
  // in the median of what actions take.
  static constexpr int64_t kTimedSteps = 2;

  // `prepare` outlives it.
  explicit RunTraces(const v1::Prepare& prepare) : prepare_(prepare) {}

  void Ask(const v1::TraceSteps& message);
  // Whether a step, counted from 0, is one whose operators are asked for.
  bool TimesOperators(int64_t step);
  // Adds what is to be told of a device's step. `first_step`: of the run.
  void Add(const StepReport& report, int64_t first_step, DeviceId device, v1::Progress& progress);

 private:
  using Key = std::tuple<DeviceId, StageId, NodeId, int64_t>;

  bool IsAsked(int64_t step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return step >= first_ && step < end_;
  }

  const v1::Prepare& prepare_;
  absl::Mutex mutex_;
  int64_t first_ ABSL_GUARDED_BY(mutex_) = 0;  // Those asked for: [first, end).
  int64_t end_ ABSL_GUARDED_BY(mutex_) = 0;
  bool operators_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<Key, OperatorTimes> sums_ ABSL_GUARDED_BY(mutex_);  // Over them.
};

}  // namespace stagewright
