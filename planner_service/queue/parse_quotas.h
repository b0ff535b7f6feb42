// Quotas as operators write them.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "planner_service/queue/queue_state.h"

namespace stagewright {

// Each "NAME=DEVICES", or "*=DEVICES" for all that have no line of their own: of owners without a
// tenant, and of tenants. INVALID_ARGUMENT names the one that is wrong, or who has two.
absl::StatusOr<QueueRules> ParseQuotas(const std::vector<std::string>& owners,
                                       const std::vector<std::string>& tenants);

}  // namespace stagewright
