#include "planner_service/models/layers.h"

#include <utility>

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
  const std::vector<int32_t> position = PositionsOf(oracle);
  std::vector<double> bytes(oracle.size(), 0);
  for (const CostTable::Value& value : oracle.costs().values()) {
    bytes[position[value.producer]] += static_cast<double>(value.bytes_per_sample);
  }
  return bytes;
}

}  // namespace stagewright
