// The timelines of a plan as a Chrome trace.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "stagewright/v1/planner_service.pb.h"

namespace stagewright::cli {

// The timelines of the plan and of the sequential plan beside it. FAILED_PRECONDITION if the answer
// carries none.
absl::Status SaveTimelines(const v1::PlanResponse& response,
                           const std::vector<std::string>& device_names, const std::string& path);

}  // namespace stagewright::cli
