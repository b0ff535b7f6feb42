// DAPPLE's published profiles as the published program plans them.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/topology/cluster.h"
#include "planner_service/importers/profile.h"
#include "planner_service/planners/dapple/chain.h"
#include "planner_service/planners/dapple/network.h"
#include "planner_service/planners/dapple/search.h"
#include "tests/support/shared_graphs.h"

namespace stagewright::dapple {

// As the program does before it plans: without sources that are called Input.
inline Graph WithoutInputs(const Graph& graph) {
  GraphData data;
  data.name = graph.name();
  std::vector<NodeId> renamed(graph.size());
  for (int32_t v = 0; v < graph.size(); ++v) {
    const Node& node = graph.node(NodeId(v));
    if (graph.dag().Predecessors(v).empty() && node.module.rfind("Input", 0) == 0) continue;
    renamed[v] = NodeId(static_cast<int64_t>(data.nodes.size()));
    data.nodes.push_back(node);
  }
  for (Node& node : data.nodes) {
    std::vector<NodeId> after;
    for (NodeId before : node.after) {
      if (renamed[before.index()].valid()) after.push_back(renamed[before.index()]);
    }
    node.after = after;
  }
  return *Graph::Create(std::move(data));
}

inline Graph LoadProfile(const std::string& path) {
  return WithoutInputs(ImportedGraph(ProfileFormat::kDapple, path));
}

// The paper's table III: A, servers of eight V100 with NVLink and 25 Gb/s between them; B, of one
// with 25 Gb/s; C, of one with 10 Gb/s. 16 devices each.
inline Cluster Configuration(char name) {
  HierarchicalSpec spec;
  spec.name = std::string("configuration ") + name;
  spec.nodes = name == 'A' ? 2 : 16;
  spec.devices_per_node = 16 / spec.nodes;
  spec.kind = {"v100", 15e12, 900e9, 0, 0};
  spec.memory = 16 * kGiB;
  spec.inside = {"nvlink", 0, 130e9};
  spec.outside = {"ethernet", 0, name == 'C' ? 10e9 / 8 : 25e9 / 8};
  return *MakeHierarchical(spec);
}

// A plan that the program's search finds when so many copies of it share the nodes.
struct ProgramPlan {
  ChainPlan plan;
  std::vector<int32_t> replicas;  // By stage.
  int32_t copies = 1;
  double latency = 0;   // By the program's formula, asked again for the plan as a whole.
  double speed_up = 0;  // Over one device.
};

// All plans over the numbers of copies that the program tries: devices over 2, 3, ...
inline std::vector<ProgramPlan> ProgramPlans(const Graph& graph, const std::vector<int32_t>& nodes,
                                             int64_t global_batch, int64_t micro_batch) {
  const CodedNetwork network(nodes);
  Placements placements(nodes);
  const ChainCosts costs =
      ProfiledChain(graph, graph.dag().order(), static_cast<double>(micro_batch));
  const double one_device = costs.least.back() * static_cast<double>(global_batch / micro_batch);
  std::vector<ProgramPlan> plans;
  std::set<int32_t> tried;
  for (int32_t groups = 2; groups <= placements.size(); ++groups) {
    SearchOptions options;
    options.ranking = Ranking::kCoded;
    options.copies = placements.size() / groups;
    if (placements.size() % options.copies != 0 || !tried.insert(options.copies).second) continue;
    options.micro_batches = global_batch / options.copies / micro_batch;
    if (options.micro_batches < 1) continue;
    for (ChainPlan& plan :
         SearchChain(costs, network, placements, options, SearchContext()).plans) {
      const double latency = LatencyOf(costs, network, placements, options, plan.stages);
      std::vector<int32_t> replicas;
      for (const ChainStage& stage : plan.stages) {
        replicas.push_back(static_cast<int32_t>(placements.Devices(stage.devices).size()));
      }
      plans.push_back(
          {std::move(plan), std::move(replicas), options.copies, latency, one_device / latency});
    }
  }
  return plans;
}

// The first of those with the greatest speed-up. REQUIRES: there are some.
inline const ProgramPlan& Best(const std::vector<ProgramPlan>& plans) {
  return *std::max_element(
      plans.begin(), plans.end(),
      [](const ProgramPlan& a, const ProgramPlan& b) { return a.speed_up < b.speed_up; });
}

}  // namespace stagewright::dapple
