#include "common/wire/split_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/wire/graph_proto.h"

namespace stagewright {
namespace {

// A linear layer without a bias for `length` rows of 4 features a sample.
v1::Graph Layer(int64_t length) {
  GraphData data;
  data.inputs = {{"x", {DType::kFloat32, {{1, 0}, {0, length}, {0, 4}}}, InputRole::kFeature}};
  Parameter weight;
  weight.name = "w";
  weight.shape = {6, 4};
  weight.aliases = {"tied"};
  data.parameters = {weight};
  Node linear, mean;
  linear.name = "linear";
  linear.target = "aten.linear.default";
  linear.args = {{InputId(0)}, {ParameterId(0)}};
  linear.outputs = {{DType::kFloat32, {{1, 0}, {0, length}, {0, 6}}}};
  mean.name = "mean";
  mean.target = "aten.mean.default";
  mean.args = {{ValueRef{NodeId(0), 0}}};
  mean.outputs = {{DType::kFloat32, {}}};
  data.nodes = {linear, mean};
  data.loss = ValueRef{NodeId(1), 0};
  return ToProto(*Graph::Create(data));
}

TEST(SplitGraphTest, SlicesTravelAndLengthsAreCutAlike) {
  v1::Graph whole = Layer(8);
  *whole.add_lengths() = Layer(5);
  const auto split = SplitGraph(whole, {{"linear", 3}});
  ASSERT_TRUE(split.ok()) << split.status();
  const auto graph = FromProto(*split);
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_EQ(graph->parameters().size(), 3u);
  EXPECT_EQ(graph->parameter(ParameterId(2)).slice, (ParameterSlice{"w", {"tied"}, {6, 4}, 0, 4}));
  const auto lengths = LengthsFromProto(*split, *graph);
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  ASSERT_EQ(lengths->size(), 1u);
  EXPECT_EQ(lengths->front().size(), graph->size());
  EXPECT_EQ(SplitGraph(whole, {})->SerializeAsString(), whole.SerializeAsString());
  EXPECT_FALSE(SplitGraph(whole, {{"linear", 5}}).ok());
}

}  // namespace
}  // namespace stagewright
