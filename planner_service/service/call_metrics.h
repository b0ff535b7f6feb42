// Counts and times every call of every service in one place, streams included; methods that are not
// in the table of roles (planner_service/access/roles.h) are "unknown".
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>

#include "planner_service/service/metrics.h"

namespace stagewright {

// For ServerBuilder. `metrics` outlives the server.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> CountCalls(
    PlannerMetrics* metrics);

}  // namespace stagewright
