// The small problem that plans from strangers are judged on: two branches and a join, four devices.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/cost/analytic.h"
#include "common/cost/cost_model.h"
#include "common/graph/graph.h"
#include "common/graph/operator_graph.h"
#include "common/topology/cluster.h"
#include "common/topology/presets.h"

namespace stagewright::fuzz {

struct SmallProblem {
  Graph graph;
  Cluster cluster;
  OperatorGraph operators;
  std::unique_ptr<CostModel> costs;
};

inline constexpr int64_t kMiniBatch = 24;

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
    auto* result = new SmallProblem{*std::move(graph), *std::move(cluster), {}, nullptr};
    auto operators = OneOperatorPerNode(result->graph);
    CHECK(operators.ok());
    result->operators = *std::move(operators);
    result->costs = MakeAnalyticCostModel(result->graph);
    return result;
  }();
  return *problem;
}

}  // namespace stagewright::fuzz
