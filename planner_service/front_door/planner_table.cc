#include "planner_service/front_door/planner_table.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner_service/planners/auto/auto.h"
#include "planner_service/planners/baselines/baselines.h"
#include "planner_service/planners/baselines/gpipe.h"
#include "planner_service/planners/baselines/manual.h"
#include "planner_service/planners/baselines/manual_plan.h"
#include "planner_service/planners/dapple/dapple.h"
#include "planner_service/planners/drl_pp/on_demand.h"
#include "planner_service/planners/exact/exact.h"
#include "planner_service/planners/graphpipe/graphpipe.h"
#include "planner_service/planners/pfeife/pfeife.h"
#include "planner_service/planners/pipedream/pipedream.h"
#include "planner_service/planners/piper/piper.h"

namespace stagewright {
namespace {

std::unique_ptr<Planner> MakeExact() {
  return MakeExactPlanner({MakeGraphPipePlanner(), MakeSequentialPlanner(), MakeSinglePlanner()});
}

constexpr RegisteredPlanner kPlanners[] = {
    {kDefaultPlanner, MakeAutoPlanner},
    {"graphpipe", MakeGraphPipePlanner},
    {kSequentialPlanner, MakeSequentialPlanner},
    {"pipedream", MakePipeDreamPlanner},
    {"piper", MakePiperPlanner},
    {"exact", MakeExact},
    {"dapple", MakeDapplePlanner},
    {"pfeife", MakePfeifePlanner},
    {"gpipe", MakeGPipePlanner},
    {"data-parallel", MakeDataParallelPlanner},
    {"single", MakeSinglePlanner},
};

constexpr RegisteredPlanner kOnRequest[] = {
    {"drl_pp", MakeDrlPpPlannerOnDemand},
    {kManualPlanner, MakeManualPlanner},
};

}  // namespace

std::span<const RegisteredPlanner> RegisteredPlanners() { return kPlanners; }

std::span<const RegisteredPlanner> PlannersOnRequest() { return kOnRequest; }

absl::StatusOr<Strategy> ReadManualPlan(const Problem& problem, const std::string& text) {
  return ParseManualPlan(problem, text);
}

absl::StatusOr<std::unique_ptr<Planner>> MakePlanner(const std::string& name) {
  std::vector<const char*> known;
  for (const auto& planners : {RegisteredPlanners(), PlannersOnRequest()}) {
    for (const RegisteredPlanner& entry : planners) {
      if (entry.name == name) return entry.make();
      known.push_back(entry.name);
    }
  }
  return absl::NotFoundError(
      absl::StrCat("planner: there is no '", name, "'; there are ", absl::StrJoin(known, ", ")));
}

}  // namespace stagewright
