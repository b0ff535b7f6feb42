// The planners that "auto" runs before it searches on its own.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "planner_service/planner/planner.h"

namespace stagewright {

struct AutoMember {
  std::unique_ptr<Planner> planner;
  bool sequential = false;  // Makes sequential strategies (or single stages).
  int64_t most_effort = 0;  // Limit of its SearchContext.
  double most_work = 0;     // The part of the members' work that is left which it may take.
  bool quick = false;       // It answers sooner than the first drafts are rated.
  // Runs again with less memory than its answer needs, and with a little more: a search for the
  // least bottleneck fills the memory that it has, with deep pipelines where shallow ones may win.
  bool several_memories = false;
  // Runs again with micro-batches next to those of what the search made of all answers.
  bool several_sizes = false;
};

// The members that fit the problem and can keep to the options, in the order in which they run:
// cheap ones first, so that a deadline finds an answer.
std::vector<AutoMember> AutoMembers(const Problem& problem, const PlanOptions& options);

}  // namespace stagewright
