// Following a job to its end, with progress on standard error.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "clients/cli/connection.h"
#include "common/base/status.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright::cli {

struct FollowOptions {
  // The job is known to be there, so that a planner that does not answer is waited for from the
  // beginning, not only once it has answered.
  bool known = false;
  absl::Duration patience = absl::Minutes(10);  // With a planner that does not answer.
};

// The job as it ended: a line that is rewritten on a terminal, a line per state elsewhere. A
// planner that is started again is asked again, at growing intervals, and one with an older state
// from the beginning. UNAVAILABLE when patience ends.
absl::StatusOr<v1::Job> Follow(Connection& connection, const std::string& name,
                               const FollowOptions& options = {});

}  // namespace stagewright::cli
