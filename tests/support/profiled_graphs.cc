#include "tests/support/profiled_graphs.h"

#include <cstdio>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace stagewright::testing {

Graph ProfiledGraph(const std::vector<Work>& nodes) {
  GraphData data;
  data.name = "profile";
  for (const Work& work : nodes) {
    Node node;
    node.name = absl::StrCat("n", data.nodes.size());
    for (int32_t before : work.after) node.after.push_back(NodeId(before));
    node.cost =
        ProfiledCost{work.forward, work.backward, work.activation_bytes, work.parameter_bytes, 1};
    data.nodes.push_back(std::move(node));
  }
  auto graph = Graph::Create(std::move(data));
  if (!graph.ok()) std::fprintf(stderr, "%s\n", graph.status().ToString().c_str());
  CHECK(graph.ok());
  return *std::move(graph);
}

Graph ProfiledChain(int32_t length, Work each) {
  std::vector<Work> nodes;
  for (int32_t i = 0; i < length; ++i) {
    nodes.push_back(each);
    nodes.back().after = i > 0 ? std::vector<int32_t>{i - 1} : std::vector<int32_t>{};
  }
  return ProfiledGraph(nodes);
}

Graph TwoProfiledNodes() {
  GraphData data;
  for (int i = 0; i < 2; ++i) {
    Node node;
    node.name = absl::StrCat("n", i);
    node.cost = ProfiledCost{10, 20, 1000, 400, 8};
    data.nodes.push_back(node);
  }
  data.nodes[1].after = {NodeId(0)};
  return *Graph::Create(data);
}

}  // namespace stagewright::testing
