// A graph with a tied parameter, for tests of what is written under which name.
#pragma once

#include <vector>

#include "common/graph/graph.h"

namespace stagewright::testing {

// Parameters "embedding" (alias "output.weight") and "bias", read by one node, and those of `more`,
// which no node reads.
inline Graph Tied(const std::vector<Parameter>& more = {}) {
  GraphData data;
  data.name = "tied";
  data.parameters = {
      {"embedding", DType::kFloat32, {2}, true, false, {"output.weight"}},
      {"bias", DType::kFloat32, {1}, true, false, {}},
  };
  data.parameters.insert(data.parameters.end(), more.begin(), more.end());
  Node node;
  node.name = "n";
  node.target = "aten.some.default";
  node.args = {{ParameterId(0)}, {ParameterId(1)}};
  node.outputs = {{DType::kFloat32, {}}};
  data.nodes = {node};
  return *Graph::Create(data);
}

}  // namespace stagewright::testing
