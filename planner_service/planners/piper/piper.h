// The Piper planner: stages between downsets, with replicas and recomputation per stage.
#pragma once

#include <memory>

#include "planner_service/planner/planner.h"

namespace stagewright {

std::unique_ptr<Planner> MakePiperPlanner();  // "piper"

}  // namespace stagewright
