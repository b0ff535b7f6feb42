#include "planner_service/planners/auto/members.h"

#include <utility>

#include "planner_service/planners/baselines/baselines.h"
#include "planner_service/planners/dapple/dapple.h"
#include "planner_service/planners/graphpipe/graphpipe.h"
#include "planner_service/planners/pfeife/pfeife.h"
#include "planner_service/planners/pipedream/pipedream.h"
#include "planner_service/planners/piper/piper.h"

namespace stagewright {

std::vector<AutoMember> AutoMembers(const Problem& problem, const PlanOptions& options) {
  std::vector<AutoMember> members;
  const auto add = [&](std::unique_ptr<Planner> planner, bool sequential, double share) {
    if (options.sequential && !sequential) return;
    members.push_back({std::move(planner), sequential, share});
  };
  if (options.asynchronous) {
    add(MakePipeDreamPlanner(), true, 0.5);
    return members;
  }
  add(MakeSinglePlanner(), true, 0.25);
  if (options.allow_replicas) add(MakeDataParallelPlanner(), true, 0.25);
  if (problem.cluster->size() == 1) return members;
  add(MakeGPipePlanner(), true, 0.25);
  add(MakeSequentialPlanner(), true, 0.25);
  add(MakeGraphPipePlanner(), false, 0.25);
  add(MakePipeDreamPlanner(), true, 0.25);
  add(MakeDapplePlanner(), true, 0.25);
  add(MakePfeifePlanner(), true, 0.25);
  add(MakePiperPlanner(), false, 0.25);
  return members;
}

}  // namespace stagewright
