// `stagewright watch`, and `submit --watch`.
#pragma once

#include <string>

#include "clients/cli/connection.h"
#include "clients/cli/globals.h"
#include "clients/cli/jobs/follow.h"

namespace stagewright::cli {

// Follows the job to its end and prints what became of it; kSuccess if it succeeded.
int Watch(Connection& connection, const std::string& name, const Globals& globals,
          const FollowOptions& options = {});

}  // namespace stagewright::cli
