#include "common/memory/segments.h"

#include <algorithm>

namespace stagewright {
namespace {

// What a value or node depends on.
enum class Origin : uint8_t { kConstant, kParameters, kActivations };

void SortUnique(std::vector<int32_t>& places) {
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
}

}  // namespace

NodeOrder::NodeOrder(const Graph& graph) : rank_(graph.size()) {
  const std::vector<int32_t>& order = graph.dag().order();
  for (size_t i = 0; i < order.size(); ++i) rank_[order[i]] = static_cast<int32_t>(i);
}

std::vector<NodeId> NodeOrder::Of(const ProgramStage& stage) const {
  std::vector<NodeId> nodes = stage.replicated;
  nodes.insert(nodes.end(), stage.nodes.begin(), stage.nodes.end());
  std::sort(nodes.begin(), nodes.end(),
            [this](NodeId a, NodeId b) { return rank_[a.index()] < rank_[b.index()]; });
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

SegmentNode MakeSegmentNode(const Graph& graph, NodeId node) {
  SegmentNode made;
  for (ParameterId p : graph.Parameters(node))
    made.takes_parameter = made.takes_parameter || graph.parameter(p).trainable;
  made.takes_input = !graph.Inputs(node).empty() || !graph.Totals(node).empty();
  return made;
}

std::vector<std::vector<int32_t>> LastUses(const std::vector<SegmentNode>& nodes,
                                           const std::vector<bool>& kept) {
  std::vector<bool> seen = kept;
  std::vector<std::vector<int32_t>> last(nodes.size());
  for (size_t n = nodes.size(); n-- > 0;) {
    for (const std::vector<int32_t>* places : {&nodes[n].reads, &nodes[n].makes}) {
      for (int32_t place : *places) {
        if (seen[place]) continue;
        seen[place] = true;
        last[n].push_back(place);
      }
    }
  }
  return last;
}

SegmentPlan NumberSegments(const std::vector<SegmentNode>& nodes, int32_t places) {
  SegmentPlan plan;
  plan.of_node.reserve(nodes.size());
  plan.of_place.assign(places, -1);
  plan.crosses.assign(places, false);
  std::vector<Origin> origin(places, Origin::kActivations);
  std::vector<int32_t> level(places, 0);  // Parameter nodes on the longest path up to the value.
  for (const SegmentNode& node : nodes) {
    Origin of_node = node.takes_input ? Origin::kActivations : Origin::kConstant;
    bool reads_parameters = node.takes_parameter;
    int32_t deepest = 0;
    for (int32_t place : node.reads) {
      if (origin[place] == Origin::kActivations) of_node = Origin::kActivations;
      if (origin[place] == Origin::kParameters) reads_parameters = true;
      deepest = std::max(deepest, level[place]);
    }
    if (of_node == Origin::kConstant && reads_parameters) of_node = Origin::kParameters;
    int32_t segment = SegmentPlan::kParameterSide;
    if (of_node != Origin::kParameters) {
      if (reads_parameters) ++deepest;
      segment = 2 * deepest + (reads_parameters ? 0 : 1);
    }
    plan.of_node.push_back(segment);
    plan.segments = std::max(plan.segments, segment + 1);
    for (int32_t place : node.makes) {
      plan.of_place[place] = segment;
      origin[place] = of_node;
      level[place] = deepest;
    }
  }
  for (size_t n = 0; n < nodes.size(); ++n) {
    for (int32_t place : nodes[n].reads) {
      if (plan.of_place[place] != plan.of_node[n]) plan.crosses[place] = true;
    }
  }
  return plan;
}

SegmentPlan PlanSegments(const std::vector<SegmentNode>& nodes, int32_t places, int32_t received,
                         const std::vector<int32_t>& given) {
  SegmentPlan plan = NumberSegments(nodes, places);
  plan.reads.resize(plan.segments);
  for (size_t n = 0; n < nodes.size(); ++n) {
    for (int32_t place : nodes[n].reads) {
      if (plan.of_place[place] != plan.of_node[n]) plan.reads[plan.of_node[n]].push_back(place);
    }
  }
  for (std::vector<int32_t>& reads : plan.reads) SortUnique(reads);
  for (int32_t place : given) plan.crosses[place] = true;
  plan.gives.resize(plan.segments);
  for (int32_t place = received; place < places; ++place) {
    if (plan.crosses[place]) plan.gives[plan.of_place[place]].push_back(place);
  }
  return plan;
}

}  // namespace stagewright
