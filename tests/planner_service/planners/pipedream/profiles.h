// Published profiles and what the recurrence finds on them.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "planner_service/planners/pipedream/layers.h"
#include "planner_service/planners/pipedream/partition.h"
#include "tests/support/shared_graphs.h"

namespace stagewright::pipedream {

inline LayerProfile LoadProfile(const std::string& path) {
  return ProfileOf(ImportedGraph(ProfileFormat::kPipeDream, path));
}

// Each layer reads only the one before it, in the order of the file.
inline LayerProfile AsChain(LayerProfile profile) {
  std::vector<Dag::Edge> edges;
  for (int32_t v = 1; v < profile.size(); ++v) edges.emplace_back(v - 1, v);
  profile.dag = *Dag::Create(profile.size(), std::move(edges));
  return profile;
}

// For mini-batches of another size.
inline LayerProfile Scaled(LayerProfile profile, double factor) {
  for (double& seconds : profile.seconds) seconds *= factor;
  for (double& bytes : profile.output) bytes *= factor;
  return profile;
}

struct Found {
  std::vector<PlannedStage> stages;
  double bottleneck = 0;
  bool complete = false;  // The search was over all downsets.
  double seconds = 0;     // Time of the search, without reading the file.

  std::vector<int32_t> Replicas() const {
    std::vector<int32_t> replicas;
    for (const PlannedStage& stage : stages) replicas.push_back(stage.replicas);
    return replicas;
  }
};

inline Found Solve(const LayerProfile& profile, const Rules& rules,
                   const std::vector<Level>& levels, int32_t most_states = 1024) {
  const SearchContext context;
  const auto start = SearchContext::Clock::now();
  const States states(profile.dag, profile.seconds, profile.output, most_states, context);
  const Limits limits;
  Partitioner partitioner(states, StateCosts::Of(profile, states), rules, levels, limits, context);
  partitioner.Run();
  Found found;
  found.stages = partitioner.Stages(1);
  found.bottleneck = partitioner.bottleneck();
  found.complete = states.complete();
  found.seconds = std::chrono::duration<double>(SearchContext::Clock::now() - start).count();
  return found;
}

}  // namespace stagewright::pipedream
