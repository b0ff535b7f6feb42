// DAPPLE's published profiles as the published program plans them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
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
  const auto imported = ImportProfileFile(ProfileFormat::kDapple, path);
  CHECK(imported.ok());
  return WithoutInputs(imported->graph);
}

}  // namespace stagewright::dapple
