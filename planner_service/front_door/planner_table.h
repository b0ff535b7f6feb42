// The planners there are: one explicit table, no registration behind anybody's back. To add a
// planner, add its line here and the conformance suite runs it.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "common/base/status.h"
#include "planner_service/planner/planner.h"

namespace stagewright {

// The planner of those who name none.
inline constexpr char kDefaultPlanner[] = "auto";

// The planner that other plans are compared with (PlanRequest::compare_sequential).
inline constexpr char kSequentialPlanner[] = "sequential";

// The planner of one device.
inline constexpr char kSinglePlanner[] = "single";

struct RegisteredPlanner {
  const char* name;  // As Planner::name().
  std::unique_ptr<Planner> (*make)();
};

// The planners that search, best first.
std::span<const RegisteredPlanner> RegisteredPlanners();

// Planners that run only when they are named, and that MakePlanner knows, too: drl_pp learns for
// minutes and needs LibTorch; manual reads a plan instead of searching for one.
std::span<const RegisteredPlanner> PlannersOnRequest();

// What the planner "manual" reads, also before there are devices: ParseManualPlan
// (planners/baselines/manual_plan.h).
absl::StatusOr<Strategy> ReadManualPlan(const Problem& problem, const std::string& text);

// NOT_FOUND lists the known names.
absl::StatusOr<std::unique_ptr<Planner>> MakePlanner(const std::string& name);

}  // namespace stagewright
