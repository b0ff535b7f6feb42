#include "planner_service/models/layers.h"

#include <algorithm>
#include <utility>

#include "common/cost/value_bytes.h"

namespace stagewright {
namespace {

// By operator.
std::vector<int32_t> PositionsOf(const StageOracle& oracle) {
  std::vector<int32_t> position(oracle.size());
  for (int32_t p = 0; p < oracle.size(); ++p) position[oracle.order()[p].index()] = p;
  return position;
}

}  // namespace

Dag LayerGraph(const StageOracle& oracle) {
  const std::vector<int32_t> position = PositionsOf(oracle);
  std::vector<Dag::Edge> edges;
  for (const auto& [from, to] : oracle.problem().operators->dag().Edges()) {
    edges.emplace_back(position[from], position[to]);
  }
  return *Dag::Create(oracle.size(), std::move(edges));
}

std::vector<double> LayerOutputs(const StageOracle& oracle) {
  const Graph& graph = *oracle.problem().graph;
  const OperatorGraph& operators = *oracle.problem().operators;
  const std::vector<int32_t> position = PositionsOf(oracle);
  std::vector<ValueRef> values;
  for (int32_t v = 0; v < graph.size(); ++v) {
    const OperatorId reader = operators.owner(NodeId(v));
    ForEachRead(graph, NodeId(v), [&](ValueRef value) {
      const OperatorId owner = operators.owner(value.node);
      if (owner.valid() && owner != reader) values.push_back(value);
    });
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  std::vector<double> bytes(oracle.size(), 0);
  for (const ValueRef& value : values) {
    bytes[position[operators.owner(value.node).index()]] +=
        static_cast<double>(ValueBytesPerSample(graph, value, 1));
  }
  return bytes;
}

}  // namespace stagewright
