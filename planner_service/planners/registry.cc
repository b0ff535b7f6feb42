#include "planner_service/planners/registry.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner_service/planners/baselines/baselines.h"
#include "planner_service/planners/graphpipe/graphpipe.h"

namespace stagewright {
namespace {

constexpr RegisteredPlanner kPlanners[] = {
    {"graphpipe", MakeGraphPipePlanner},
    {kSequentialPlanner, MakeSequentialPlanner},
    {"data-parallel", MakeDataParallelPlanner},
    {"single", MakeSinglePlanner},
};

}  // namespace

std::span<const RegisteredPlanner> RegisteredPlanners() { return kPlanners; }

absl::StatusOr<std::unique_ptr<Planner>> MakePlanner(const std::string& name) {
  for (const RegisteredPlanner& entry : kPlanners) {
    if (entry.name == name) return entry.make();
  }
  const std::string known = absl::StrJoin(
      kPlanners, ", ",
      [](std::string* out, const RegisteredPlanner& entry) { out->append(entry.name); });
  return absl::NotFoundError(absl::StrCat("planner: there is no '", name, "'; there are ", known));
}

}  // namespace stagewright
