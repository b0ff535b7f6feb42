// A graph whose nodes are being replaced by several. Nodes keep their ids, and so do values, inputs
// and totals: what is new comes behind.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"

namespace stagewright {

class GraphEdit {
 public:
  explicit GraphEdit(const Graph& graph) : data_(graph.data()) {}

  NodeId Add(Node node);
  // Puts another node in the place of one.
  void Replace(NodeId id, Node node) { data_.nodes[id.index()] = std::move(node); }
  Node& node(NodeId id) { return data_.nodes[id.index()]; }
  void DropPrediction() { data_.prediction.reset(); }

  // Whoever reads a value of the graph as it was reads another from now on.
  void Redirect(ValueRef from, ValueRef to) { redirected_.emplace(from, to); }

  // The equal slices of a parameter, or of a slice of one, along a dimension, the first in its
  // place. The same for each node that asks for the same; INVALID_ARGUMENT, naming the parameter,
  // if one asked otherwise, if it is a slice along another dimension or a constant, or does not
  // divide.
  absl::StatusOr<std::vector<ParameterId>> Slices(ParameterId id, int32_t dim, int32_t parts);

  // Says that the node reads slices as such. INVALID_ARGUMENT of Finish() names what else reads a
  // parameter of which there are only slices now.
  void ReadsSlices(NodeId id);
  absl::StatusOr<Graph> Finish() &&;

 private:
  void FollowRedirections();

  GraphData data_;
  std::map<ParameterId, std::vector<ParameterId>> slices_;  // By the id that they all had.
  std::map<ValueRef, ValueRef> redirected_;
  std::vector<bool> reads_slices_;  // By node.
};

}  // namespace stagewright
