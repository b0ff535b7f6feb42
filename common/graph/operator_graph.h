// What planners cut: the graph coarsened to planner operators (design section 3, coarsening).
//
// An operator is a convex group of nodes that always share a stage. Views, elementwise work and
// other light nodes join a neighbour; nodes joined by a tensor that cannot be cut along the batch
// (TensorMeta::IsBatched), and the readers and the writer of a state, are never separated. Constant
// subgraphs (masks, position ids, tables of rotary positions: nothing that trains or changes) that
// several operators read are not operators: they are *replicated* into every stage that uses them.
#pragma once

#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/graph/dag.h"
#include "common/graph/graph.h"

namespace stagewright {

struct Operator {
  std::string name;  // The name of its most expensive node, with the module path when there is one.
  std::vector<NodeId> nodes;  // Its own nodes, in topological order. Never empty.
};

class OperatorGraph {
 public:
  const std::vector<Operator>& operators() const { return operators_; }
  const Operator& op(OperatorId id) const { return operators_[id.index()]; }
  const Dag& dag() const { return dag_; }  // Vertex v is OperatorId(v).
  int32_t size() const { return dag_.size(); }
  // The operator that owns a node; the invalid id for replicated nodes.
  OperatorId owner(NodeId node) const { return owner_[node.index()]; }
  // Nodes that belong to no operator and are recomputed by every stage that reads them; topological
  // order.
  const std::vector<NodeId>& replicated() const { return replicated_; }

 private:
  friend absl::StatusOr<OperatorGraph> Coarsen(const Graph&, const std::vector<double>&);
  friend absl::StatusOr<OperatorGraph> OneOperatorPerNode(const Graph&);
  friend OperatorGraph United(const Graph&, const OperatorGraph&, const std::vector<int32_t>&,
                              int32_t);
  std::vector<Operator> operators_;
  Dag dag_;
  std::vector<OperatorId> owner_;
  std::vector<NodeId> replicated_;
};

// `weight[node]` is the node's relative work (any unit, >= 0): light nodes join, heavy ones stand
// alone. Deterministic.
absl::StatusOr<OperatorGraph> Coarsen(const Graph& graph, const std::vector<double>& weight);

// Every node an operator (imported profiles).
absl::StatusOr<OperatorGraph> OneOperatorPerNode(const Graph& graph);

// The same nodes in `count` operators: those of one group, named like the group's first. REQUIRES:
// the quotient by `group[operator]` has no cycle. O(nodes + reads).
OperatorGraph United(const Graph& graph, const OperatorGraph& operators,
                     const std::vector<int32_t>& group, int32_t count);

// The replicated nodes that `nodes` read, directly or through other replicated nodes, in
// topological order.
std::vector<NodeId> ReplicatedInto(const Graph& graph, const OperatorGraph& operators,
                                   const std::vector<NodeId>& nodes);

}  // namespace stagewright
