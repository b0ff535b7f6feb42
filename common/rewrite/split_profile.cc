#include "common/rewrite/split_profile.h"

#include <algorithm>
#include <vector>

namespace stagewright {
namespace {

// The shares of all parts add up to the whole.
template <typename T>
T Share(T whole, int32_t index, int32_t parts) {
  const int64_t count = whole.count();
  const auto until = [&](int32_t n) {  // Without overflow, whatever the count.
    return count / parts * n + count % parts * n / parts;
  };
  return T(until(index + 1) - until(index));
}

ProfiledCost CostOfPart(const ProfiledCost& whole, int32_t index, int32_t parts) {
  ProfiledCost cost = whole;
  cost.forward = Share(whole.forward, index, parts);
  cost.backward = Share(whole.backward, index, parts);
  cost.activation_bytes = Share(whole.activation_bytes, index, parts);
  cost.parameter_bytes = Share(whole.parameter_bytes, index, parts);
  if (whole.resident_bytes.has_value())
    cost.resident_bytes = Share(*whole.resident_bytes, index, parts);
  cost.edge_bytes.clear();
  cost.configurations.clear();
  return cost;
}

// What went to or from the node goes to or from each of its parts.
void Redirect(std::vector<NeighborBytes>& entries, NodeId node, const std::vector<NodeId>& parts) {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const NeighborBytes& entry) { return entry.node == node; });
  if (found == entries.end()) return;
  const Bytes bytes = found->bytes;
  entries.erase(found);
  for (NodeId part : parts) entries.push_back({part, bytes});  // The newest nodes are last.
}

}  // namespace

void SplitProfiledNode(const Graph& graph, NodeId id, int32_t parts, GraphEdit& edit) {
  const Node& node = graph.node(id);
  std::vector<NodeId> ids;
  for (int32_t i = 0; i < parts; ++i) {
    Node part = node;
    part.name = PartName(node.name, i, parts);
    if (!node.module.empty()) part.module = PartName(node.module, i, parts);
    part.cost = CostOfPart(*node.cost, i, parts);
    ids.push_back(edit.Add(std::move(part)));
  }
  for (const int32_t before : graph.dag().Predecessors(id.value())) {
    if (!edit.node(NodeId(before)).cost.has_value()) continue;
    ProfiledCost& cost = *edit.node(NodeId(before)).cost;
    Redirect(cost.edge_bytes, id, ids);
    for (ProfiledConfiguration& way : cost.configurations) Redirect(way.sync_to, id, ids);
  }
  Node& join = edit.node(id);
  join.after = ids;
  join.cost->forward = join.cost->backward = 0;
  join.cost->parameter_bytes = 0;
  join.cost->saved_bytes = Bytes(0);
  if (join.cost->resident_bytes.has_value()) join.cost->resident_bytes = Bytes(0);
  join.cost->configurations.clear();
}

}  // namespace stagewright
