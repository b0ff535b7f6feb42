#include "common/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "common/lowering/lower.h"
#include "tests/support/graph_builder.h"
#include "tests/support/layer_graphs.h"
#include "tests/support/schedule_cases.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

GraphData Contents() {
  testing::GraphBuilder builder("contents");
  const Argument x = builder.Feature("x", {4});
  const Argument y = builder.Linear(x, 4, 4);
  builder.Loss(
      builder.Add("aten.add.Tensor", {y, {2.5}, {true}, {std::string("text")}, {None{}}}, {4}),
      {4});
  builder.data.nodes[0].kwargs.push_back({"dtype", {DType::kFloat32}});
  return builder.data;
}

uint64_t Of(const GraphData& data) { return Fingerprint(*Graph::Create(data)); }

TEST(Fingerprint, IsTheSameEverywhereAndForEver) {
  // Fails where the hash depends on platform or process, and when its definition changes: then
  // plans that were stored no longer match their graphs.
  EXPECT_EQ(Of(Contents()), Of(Contents()));
  EXPECT_EQ(Of(Contents()), 4149730951836813563u);
}

TEST(Fingerprint, DependsOnEveryPartOfTheGraph) {
  const std::vector<std::function<void(GraphData&)>> changes = {
      [](GraphData& d) { d.name = "other"; },
      [](GraphData& d) { d.nodes[0].name = "other"; },
      [](GraphData& d) { d.nodes[0].target = "aten.linear.out"; },
      [](GraphData& d) { d.nodes[1].args[1].value = 2.25; },
      [](GraphData& d) { d.nodes[1].args[2].value = false; },
      [](GraphData& d) { d.nodes[1].args[3].value = std::string("test"); },
      [](GraphData& d) {
        d.nodes[1].args[4].value = SymInt{0, 0};
      },
      [](GraphData& d) { d.nodes[1].args.pop_back(); },
      [](GraphData& d) { d.nodes[0].kwargs[0].name = "type"; },
      [](GraphData& d) { d.nodes[0].kwargs[0].value.value = DType::kFloat16; },
      [](GraphData& d) { d.nodes[0].outputs[0].shape[1].offset = 5; },
      [](GraphData& d) { d.nodes[0].outputs[0].dtype = DType::kBFloat16; },
      [](GraphData& d) { d.nodes[0].module = "layer"; },
      [](GraphData& d) { d.nodes[1].after = {NodeId(0)}; },
      [](GraphData& d) { d.nodes[1].cost = ProfiledCost{}; },
      [](GraphData& d) { d.nodes[1].batch_dependent = true; },
      [](GraphData& d) { d.parameters[0].name = "other"; },
      [](GraphData& d) { d.parameters[0].shape[0] = 5; },
      [](GraphData& d) { d.parameters[0].trainable = false; },
      [](GraphData& d) { d.parameters[0].buffer = true; },
      [](GraphData& d) { d.parameters[0].aliases = {"alias"}; },
      [](GraphData& d) { d.inputs[0].name = "other"; },
      [](GraphData& d) { d.inputs[0].role = InputRole::kTarget; },
      [](GraphData& d) { d.loss.reset(); },
      [](GraphData& d) { d.loss_reduction = LossReduction::kSum; },
      [](GraphData& d) {
        d.prediction = ValueRef{NodeId(0), 0};
      }};
  std::set<uint64_t> seen = {Of(Contents())};
  for (size_t i = 0; i < changes.size(); ++i) {
    GraphData data = Contents();
    changes[i](data);
    EXPECT_TRUE(seen.insert(Of(data)).second) << "change " << i;
  }
}

TEST(Fingerprint, DependsOnLayoutsTotalsAndStates) {
  GraphData with = Contents();
  with.parameters.push_back({"state", DType::kFloat32, {}, false, true, {}});
  with.nodes[1].args.pop_back();
  Node total = with.nodes[0];
  total.name = "total";
  total.args = {{InputId(1)}};
  total.outputs = {testing::Fixed({})};
  with.totals = {{total, total}, {{NodeId(0), 0}}};
  with.state_updates = {{ParameterId(2), *with.loss}};
  const std::vector<std::function<void(GraphData&)>> changes = {
      [](GraphData& d) { d.nodes[0].outputs[0].layout = SampleLayout{}; },
      [](GraphData& d) { d.nodes[0].outputs[0].mixed = true; },
      [](GraphData& d) {
        d.nodes[0].outputs[0].shape[0] = {4, 0};
        d.nodes[0].outputs[0].layout = SampleLayout{0, 2};
      },
      [](GraphData& d) {
        d.nodes[0].outputs[0].shape[0] = {4, 0};
        d.nodes[0].outputs[0].layout = SampleLayout{0, 4};
      },
      [](GraphData& d) { d.nodes[1].args.push_back({TotalId(0)}); },
      [](GraphData& d) { d.nodes[1].args.push_back({InputId(0)}); },
      [](GraphData& d) { d.totals.nodes[0].target = "aten.mean.default"; },
      [](GraphData& d) { d.totals.values[0].node = NodeId(1); },
      [](GraphData& d) { d.state_updates.clear(); },
      [](GraphData& d) { d.parameters[2].data = "0123"; },
      [](GraphData& d) { d.parameters[2].data = "0124"; },
      [](GraphData& d) { d.samples.least = 2; },
      [](GraphData& d) { d.samples.most = 2; }};
  std::set<uint64_t> seen = {Of(with)};
  for (size_t i = 0; i < changes.size(); ++i) {
    GraphData data = with;
    changes[i](data);
    EXPECT_TRUE(seen.insert(Of(data)).second) << "change " << i;
  }
}

TEST(Fingerprint, OfAProgramDependsOnItsTextAndTheGraph) {
  const Graph graph = testing::ChainGraph(2);
  const testing::FixedCosts costs(1, 1, graph);
  Program program =
      *Lower(graph, testing::MakeStages(graph, 4, {{{0}, {0}}, {{1, 2}, {1}}}), costs, {});
  const uint64_t before = Fingerprint(program, 1);
  EXPECT_EQ(Fingerprint(program, 1), before);
  EXPECT_NE(Fingerprint(program, 2), before);
  program.devices[1].body.back().after.pop_back();
  EXPECT_NE(Fingerprint(program, 1), before);
}

}  // namespace
}  // namespace stagewright
