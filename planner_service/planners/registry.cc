#include "planner_service/planners/registry.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner_service/planners/auto/auto.h"
#include "planner_service/planners/baselines/baselines.h"
#include "planner_service/planners/dapple/dapple.h"
#include "planner_service/planners/exact/exact.h"
#include "planner_service/planners/graphpipe/graphpipe.h"
#include "planner_service/planners/pfeife/pfeife.h"
#include "planner_service/planners/pipedream/pipedream.h"
#include "planner_service/planners/piper/piper.h"

namespace stagewright {
namespace {

constexpr RegisteredPlanner kPlanners[] = {
    {kDefaultPlanner, MakeAutoPlanner},
    {"graphpipe", MakeGraphPipePlanner},
    {kSequentialPlanner, MakeSequentialPlanner},
    {"pipedream", MakePipeDreamPlanner},
    {"piper", MakePiperPlanner},
    {"exact", MakeExactPlanner},
    {"dapple", MakeDapplePlanner},
    {"pfeife", MakePfeifePlanner},
    {"gpipe", MakeGPipePlanner},
    {"data-parallel", MakeDataParallelPlanner},
    {"single", MakeSinglePlanner},
};

// Not a search: it needs a plan to begin with.
constexpr RegisteredPlanner kManual = {kManualPlanner, MakeManualPlanner};

}  // namespace

std::span<const RegisteredPlanner> RegisteredPlanners() { return kPlanners; }

const RegisteredPlanner& ManualPlanner() { return kManual; }

absl::StatusOr<std::unique_ptr<Planner>> MakePlanner(const std::string& name) {
  for (const RegisteredPlanner& entry : kPlanners) {
    if (entry.name == name) return entry.make();
  }
  if (kManual.name == name) return kManual.make();
  const std::string known = absl::StrJoin(
      kPlanners, ", ",
      [](std::string* out, const RegisteredPlanner& entry) { out->append(entry.name); });
  return absl::NotFoundError(
      absl::StrCat("planner: there is no '", name, "'; there are ", known, ", ", kManual.name));
}

}  // namespace stagewright
