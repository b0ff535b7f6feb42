// Actions of a run with what a worker knows of them.
#pragma once

#include <vector>

#include "common/program/program.h"
#include "common/program/run_cursor.h"
#include "common/program/step_samples.h"
#include "common/program/trace.h"
#include "worker_daemon/step/device_plan.h"

namespace stagewright {

struct StepAction {
  RunAction place;  // In the run under way.
  const ProgramAction* entry = nullptr;
  const ActionPlan* plan = nullptr;
  int64_t step = 0;     // Its section's, counted in the job; a prologue's is the first.
  StepSamples samples;  // In the job.

  const Action& action() const { return entry->action; }
};

// What ended, in the order of its end.
struct StepTrace {
  std::vector<TraceEvent> events;
  std::vector<StepAction> actions;  // Parallel to `events`.
};

}  // namespace stagewright
