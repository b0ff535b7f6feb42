#include "common/rewrite/graph_edit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using testing::GraphBuilder;
using ::testing::HasSubstr;

// Two layers that share a weight of 4 x 4.
Graph Shared() {
  GraphBuilder build("shared");
  const Argument weight = build.Weight("w", {4, 4});
  build.data.parameters[0].aliases = {"tied"};
  Argument x = build.Feature("x", {4});
  for (int i = 0; i < 2; ++i) x = build.Add("aten.linear.default", {x, weight}, {4});
  build.Loss(x, {4});
  return build.Build();
}

TEST(GraphEditTest, SlicesTakeThePlaceOfTheParameter) {
  GraphEdit edit(Shared());
  const auto slices = edit.Slices(ParameterId(0), 1, 2);
  ASSERT_TRUE(slices.ok()) << slices.status();
  EXPECT_EQ(*slices, (std::vector<ParameterId>{ParameterId(0), ParameterId(1)}));
  EXPECT_EQ(*edit.Slices(ParameterId(0), 1, 2), *slices);
  EXPECT_THAT(edit.Slices(ParameterId(0), 0, 2).status().message(),
              HasSubstr("parameter \"w\" is read by several nodes, which would cut it"));
  edit.ReadsSlices(NodeId(0));
  edit.ReadsSlices(NodeId(1));
  const auto graph = std::move(edit).Finish();
  ASSERT_TRUE(graph.ok()) << graph.status();
  const Parameter& second = graph->parameter(ParameterId(1));
  EXPECT_EQ(second.name, "w[2/2]");
  EXPECT_EQ(second.stored_name(), "w");
  EXPECT_EQ(second.shape, (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(second.slice, (ParameterSlice{"w", {"tied"}, {4, 4}, 1, 2}));
  EXPECT_EQ(NamesOf(StoredTensor(second)), (std::vector<std::string>{"w", "tied"}));
}

TEST(GraphEditTest, SlicesOfASliceLieInTheWhole) {
  GraphEdit first(Shared());
  const auto halves = first.Slices(ParameterId(0), 0, 2);
  ASSERT_TRUE(halves.ok()) << halves.status();
  const auto quarters = first.Slices(halves->at(1), 0, 2);
  ASSERT_TRUE(quarters.ok()) << quarters.status();
  EXPECT_EQ(*quarters, (std::vector<ParameterId>{ParameterId(1), ParameterId(2)}));
  first.ReadsSlices(NodeId(0));
  first.ReadsSlices(NodeId(1));
  const auto graph = std::move(first).Finish();
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->parameter(ParameterId(2)).slice, (ParameterSlice{"w", {"tied"}, {4, 4}, 0, 3}));
  GraphEdit second(*graph);
  EXPECT_THAT(second.Slices(ParameterId(0), 1, 2).status().message(),
              HasSubstr("is a part already, along another dimension"));
}

TEST(GraphEditTest, ReadersFollowAValueToAnother) {
  GraphEdit edit(Shared());
  edit.Redirect({NodeId(1), 0}, {NodeId(0), 0});
  const auto graph = std::move(edit).Finish();
  ASSERT_TRUE(graph.ok()) << graph.status();
  const Node& loss = graph->node(graph->loss()->node);
  EXPECT_EQ(loss.args[0], (Argument{ValueRef{NodeId(0), 0}}));
  GraphEdit cycle(Shared());
  cycle.Redirect({NodeId(0), 0}, {NodeId(1), 0});
  EXPECT_FALSE(std::move(cycle).Finish().ok());  // The second layer would read itself.
}

TEST(GraphEditTest, RefusesOtherReadersOfTheWhole) {
  GraphEdit edit(Shared());
  ASSERT_TRUE(edit.Slices(ParameterId(0), 0, 4).ok());
  edit.ReadsSlices(NodeId(0));
  EXPECT_THAT(std::move(edit).Finish().status().message(),
              HasSubstr("parameter \"w\" is read by node \"n1\", too, which is not cut like it"));
}

TEST(GraphEditTest, RefusesConstantsAndWhatDoesNotDivide) {
  GraphData data = Shared().data();
  data.parameters[0].trainable = false;
  data.parameters[0].data = std::string(64, '\0');
  GraphEdit constant(*Graph::Create(std::move(data)));
  EXPECT_THAT(constant.Slices(ParameterId(0), 0, 2).status().message(), HasSubstr("a constant"));
  GraphEdit edit(Shared());
  EXPECT_THAT(edit.Slices(ParameterId(0), 0, 3).status().message(),
              HasSubstr("cannot be cut in 3 along dimension 0"));
}

}  // namespace
}  // namespace stagewright
