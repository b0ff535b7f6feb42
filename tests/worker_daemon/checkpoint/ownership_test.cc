#include "worker_daemon/checkpoint/ownership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Node i reads the parameters given for it.
Graph Chain(const std::vector<std::vector<int>>& reads, int parameters) {
  GraphData data;
  data.name = "chain";
  for (int p = 0; p < parameters; ++p) {
    data.parameters.push_back({"p" + std::to_string(p), DType::kFloat32, {2}, true, false, {}});
  }
  for (size_t i = 0; i < reads.size(); ++i) {
    Node node;
    node.name = "n" + std::to_string(i);
    node.target = "aten.some.default";
    if (i > 0) node.args.emplace_back().value = ValueRef{NodeId(i - 1), 0};
    for (int p : reads[i]) node.args.emplace_back().value = ParameterId(p);
    node.outputs = {{DType::kFloat32, {}}};
    data.nodes.push_back(node);
  }
  return *Graph::Create(data);
}

ProgramStage Stage(std::vector<int> nodes, std::vector<int> devices) {
  ProgramStage stage;
  for (int n : nodes) stage.nodes.emplace_back(n);
  for (int d : devices) stage.devices.emplace_back(d);
  return stage;
}

TEST(ParametersToWrite, TheFirstReplicaOfTheFirstStageWrites) {
  // p1 is tied between the first and the last stage; nothing uses p4.
  const Graph graph = Chain({{0, 1}, {2}, {1, 3}}, 5);
  Program program;
  program.stages = {Stage({0}, {4, 2}), Stage({1}, {2}), Stage({2}, {0, 1})};
  EXPECT_THAT(ParametersToWrite(graph, program, DeviceId(4)),
              ElementsAre(ParameterId(0), ParameterId(1)));
  EXPECT_THAT(ParametersToWrite(graph, program, DeviceId(2)), ElementsAre(ParameterId(2)));
  EXPECT_THAT(ParametersToWrite(graph, program, DeviceId(0)), ElementsAre(ParameterId(3)));
  EXPECT_THAT(ParametersToWrite(graph, program, DeviceId(1)), IsEmpty());
}

TEST(ParametersToWrite, HasWhatAStageOnlyUpdatesAndNoConstants) {
  GraphData data = Chain({{0}, {1}}, 3).data();
  for (size_t p : {1, 2}) data.parameters[p].trainable = false;
  data.parameters[1].data = std::string(8, 'c');
  data.parameters[2].shape = {};
  data.state_updates = {{ParameterId(2), {NodeId(1), 0}}};
  const Graph graph = *Graph::Create(data);
  Program program;
  program.stages = {Stage({0}, {0}), Stage({1}, {1})};
  EXPECT_THAT(StateOfStage(graph, program.stages[1]), ElementsAre(ParameterId(1), ParameterId(2)));
  EXPECT_THAT(ParametersToWrite(graph, program, DeviceId(0)), ElementsAre(ParameterId(0)));
  EXPECT_THAT(ParametersToWrite(graph, program, DeviceId(1)), ElementsAre(ParameterId(2)));
}

}  // namespace
}  // namespace stagewright
