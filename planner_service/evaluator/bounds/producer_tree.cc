#include "planner_service/evaluator/bounds/producer_tree.h"

#include <algorithm>
#include <unordered_set>

#include "planner_service/evaluator/bounds/edge_bytes.h"

namespace stagewright {
namespace {

TreeNode MakeNode(const BoundProblem& problem, const std::vector<HeldBytes>& first_uses,
                  int32_t v) {
  TreeNode node;
  node.node = v;
  const auto& work = problem.costs[v].per_sample;
  node.work = *std::min_element(work.begin(), work.end());
  node.parameters = static_cast<double>(first_uses[v].gradients);
  return node;
}

}  // namespace

ProducerTree ProducersOf(const BoundProblem& problem, const std::vector<HeldBytes>& first_uses,
                         int32_t root, int32_t most) {
  const Graph& graph = problem.graph;
  ProducerTree tree = {MakeNode(problem, first_uses, root)};
  std::vector<bool> gradients = {graph.needs_backward(NodeId(root))};  // By tree node: reach it.
  std::unordered_set<int32_t> seen = {root};
  for (size_t i = 0; i < tree.size(); ++i) {
    const int32_t reader = tree[i].node;
    for (int32_t u : graph.dag().Predecessors(reader)) {
      if (static_cast<int32_t>(tree.size()) >= most) return tree;
      if (!problem.owned(u) || !seen.insert(u).second) continue;
      TreeNode node = MakeNode(problem, first_uses, u);
      node.parent = static_cast<int32_t>(i);
      node.activation = BytesRead(problem.types, NodeId(u), NodeId(reader));
      const bool returns = gradients[i] && GradientReturns(graph, NodeId(u), NodeId(reader));
      if (returns) node.gradient = GradientBytesRead(problem.types, NodeId(u), NodeId(reader));
      gradients.push_back(returns);
      tree.push_back(node);
    }
  }
  return tree;
}

}  // namespace stagewright
