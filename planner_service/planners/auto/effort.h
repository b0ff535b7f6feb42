// How much work each part of "auto" may do.
#pragma once

#include <cstdint>

#include "common/base/units.h"
#include "planner_service/planner/planner.h"

namespace stagewright {

// What may be spent where `work` is the budget by default, in whatever unit: the one way in which
// PlanOptions::effort counts. It makes searches longer, never wider: how many candidates go on, and
// which are given up as hopeless, stays as it is.
inline int64_t WithEffort(const PlanOptions& options, int64_t work) {
  return options.effort * work;
}

// The work of one answer where the options ask for no more: what keeps every problem within some
// seconds. Problems whose budgets come to less have these.
inline constexpr Nanos kMostWork = 3'900 * kMillisecond;

// The part of what a context may still spend.
inline Nanos PartOfWork(const SearchContext& context, double part) {
  return static_cast<Nanos>(part * static_cast<double>(context.WorkLeft()));
}

}  // namespace stagewright
