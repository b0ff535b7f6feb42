// How much work each part of "auto" may do.
#pragma once

#include <cstdint>

#include "planner_service/planner/planner.h"

namespace stagewright {

// What may be spent where `work` is the budget by default, in whatever unit: the one way in which
// PlanOptions::effort counts. It makes searches longer, never wider: how many candidates go on, and
// which are given up as hopeless, stays as it is.
inline int64_t WithEffort(const PlanOptions& options, int64_t work) {
  return options.effort * work;
}

}  // namespace stagewright
