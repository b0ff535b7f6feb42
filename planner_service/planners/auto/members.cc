#include "planner_service/planners/auto/members.h"

#include <algorithm>
#include <utility>

#include "planner_service/planners/auto/effort.h"
#include "planner_service/planners/baselines/baselines.h"
#include "planner_service/planners/baselines/gpipe.h"
#include "planner_service/planners/dapple/dapple.h"
#include "planner_service/planners/graphpipe/graphpipe.h"
#include "planner_service/planners/pfeife/pfeife.h"
#include "planner_service/planners/pipedream/pipedream.h"
#include "planner_service/planners/piper/piper.h"

namespace stagewright {

namespace {

// Far more than members with budgets of their own take on published problems; it bounds the rest.
constexpr int64_t kEffort = 2'000'000;
// Operators times devices above which a unit of effort takes longer.
constexpr int64_t kLarge = 20'000;
// Operators times devices above which members that look at the whole cluster at every step are left
// out.
constexpr int64_t kHuge = 200'000;

// Parts of the members' work that is left which one may take; less for a baseline, which has many
// strategies judged that searches soon leave behind.
constexpr double kOneMember = 0.5;
constexpr double kBaseline = 0.15;

}  // namespace

std::vector<AutoMember> AutoMembers(const Problem& problem, const PlanOptions& options) {
  std::vector<AutoMember> members;
  const int64_t size = int64_t{problem.operators->size()} * problem.cluster->size();
  const int64_t fewer = kEffort * kLarge / std::max(kLarge, size);
  bool quick = true;
  const auto add = [&](std::unique_ptr<Planner> planner, bool sequential, int64_t effort,
                       double work = kOneMember) {
    if (options.sequential && !sequential) return;
    if (!CheckAbilities(options, planner->name(), planner->abilities()).ok()) return;
    members.push_back({std::move(planner), sequential, WithEffort(options, effort), work, quick});
  };
  add(MakeSinglePlanner(), true, fewer);
  add(MakeDataParallelPlanner(), true, fewer);
  if (problem.cluster->size() == 1) return members;
  add(MakeGPipePlanner(), true, fewer, kBaseline);
  for (const bool graph : {false, true}) {
    const size_t before = members.size();
    add(graph ? MakeGraphPipePlanner() : MakeSequentialPlanner(), !graph, kEffort);
    if (members.size() == before) continue;
    members.back().several_memories = members.back().several_sizes = size <= kHuge;
  }
  quick = false;
  if (size <= kHuge) {
    const size_t before = members.size();
    add(MakePipeDreamPlanner(), true, fewer);
    if (members.size() > before) members.back().several_sizes = true;
  }
  add(MakeDapplePlanner(), true, fewer / 16);
  add(MakePfeifePlanner(), true, fewer / 16);
  if (size <= kHuge) add(MakePiperPlanner(), false, fewer);
  return members;
}

}  // namespace stagewright
