#include "planner_service/planners/auto/members.h"

#include <utility>

#include "planner_service/planners/baselines/baselines.h"
#include "planner_service/planners/graphpipe/graphpipe.h"
#include "planner_service/planners/pipedream/pipedream.h"

namespace stagewright {

std::vector<AutoMember> AutoMembers(const Problem& problem, const PlanOptions& options) {
  std::vector<AutoMember> members;
  const auto add = [&](std::unique_ptr<Planner> planner, bool sequential, double share) {
    if (options.sequential && !sequential) return;
    members.push_back({std::move(planner), sequential, share});
  };
  add(MakeSinglePlanner(), true, 0.1);
  if (options.allow_replicas) add(MakeDataParallelPlanner(), true, 0.1);
  if (problem.cluster->size() == 1) return members;
  add(MakeSequentialPlanner(), true, 0.25);
  add(MakeGraphPipePlanner(), false, 0.3);
  add(MakePipeDreamPlanner(), true, 0.2);
  return members;
}

}  // namespace stagewright
