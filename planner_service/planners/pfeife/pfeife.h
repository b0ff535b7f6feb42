// Looped pipelines with prefetch after Pfeife (ICML 2025). docs/planners/pfeife.md.
#pragma once

#include <memory>

#include "planner_service/planner/planner.h"

namespace stagewright {

std::unique_ptr<Planner> MakePfeifePlanner();

}  // namespace stagewright
