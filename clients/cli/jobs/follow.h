// Following a job to its end, with progress on standard error.
#pragma once

#include <string>

#include "clients/cli/connection.h"
#include "common/base/status.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright::cli {

// The job as it ended: a line that is rewritten on a terminal, a line per state elsewhere.
absl::StatusOr<v1::Job> Follow(Connection& connection, const std::string& name);

}  // namespace stagewright::cli
