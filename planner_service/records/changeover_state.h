// What a running job is stopped for.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "planner_service/jobs/planned_job.h"

namespace stagewright {

// What a running job does once its state is saved: it goes on under another plan, leaves workers,
// to be planned anew for what is left, or makes room for another job, to wait.
struct Changeover {
  PlannedJob plan;
  std::vector<std::string> devices;
  std::string leaves;               // Names of the workers; empty: it leaves none.
  std::optional<int64_t> room_for;  // The job that gets its devices.
  std::string room_text;            // As it is told: "jobs/7 (priority 10)".
  std::string grows;                // Why it gets more devices; empty: nobody looked for that.
  int tries = 1;                    // To have all devices stop after one step.
  // Under an asynchronous plan: workers that have agreed to the step, and until when all have to.
  std::set<std::string> agreed;
  absl::Time agreed_by = absl::InfiniteFuture();
};

}  // namespace stagewright
