// The small problem that plans from strangers are judged on: two branches and a join, four devices.
#pragma once

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/graph/graph.h"
#include "common/topology/cluster.h"
#include "planner_service/planner/front_door.h"

namespace stagewright::fuzz {

struct SmallProblem {
  Graph graph;
  Cluster cluster;
  PlanRequest request;
};

inline const SmallProblem& Small() {
  static const SmallProblem* const problem = [] {
    GraphData data;
    data.name = "small";
    const std::vector<std::vector<int64_t>> after = {{}, {0}, {1}, {0}, {3}, {2, 4}};
    for (const auto& before : after) {
      Node node;
      node.name = absl::StrCat("n", data.nodes.size());
      node.module = data.nodes.size() < 3 ? "left" : "right";
      for (int64_t u : before) node.after.push_back(NodeId(u));
      node.cost = ProfiledCost{1000, 2000, 4096, 4096, 1};
      data.nodes.push_back(std::move(node));
    }
    auto graph = Graph::Create(std::move(data));
    auto cluster = ClusterPreset("uniform:4,memory=1MiB");
    CHECK(graph.ok() && cluster.ok());
    auto* result = new SmallProblem{*std::move(graph), *std::move(cluster), {}};
    result->request.graph = &result->graph;
    result->request.cluster = &result->cluster;
    result->request.mini_batch = 24;
    return result;
  }();
  return *problem;
}

}  // namespace stagewright::fuzz
