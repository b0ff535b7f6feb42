// What explains a plan, for programs.
#pragma once

#include <nlohmann/json.hpp>

#include "stagewright/v1/planner_service.pb.h"

namespace stagewright::cli {

// In seconds: binding, parts of the step, cuts[], levers[].
nlohmann::json ExplanationJson(const v1::Explanation& explanation);

}  // namespace stagewright::cli
