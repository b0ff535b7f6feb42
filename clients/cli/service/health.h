// What a planner says of its services by gRPC's health protocol.
#pragma once

#include <string>

#include "clients/cli/connection.h"

namespace stagewright::cli {

// False if the planner at the other end says that `service` ("stagewright.v1.JobService") does not
// serve for the moment; true also where it does not say.
bool Serves(const Connection& connection, const std::string& service, absl::Duration deadline);

}  // namespace stagewright::cli
