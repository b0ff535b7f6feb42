#include "common/lowering/reductions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/graph_builder.h"
#include "tests/support/layer_graphs.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ProgramStage StageOn(std::vector<int32_t> nodes, std::vector<int32_t> devices) {
  ProgramStage stage;
  for (int32_t node : nodes) stage.nodes.push_back(NodeId(node));
  for (int32_t device : devices) stage.devices.push_back(DeviceId(device));
  return stage;
}

// Parameters of one float32 each: a frozen one, "tied" of the first and the last node, "own".
Graph TiedGraph() {
  testing::GraphBuilder builder("tied");
  const Argument x = builder.Feature("x", {1});
  const Argument frozen = builder.Weight("frozen", {1, 1}, false);
  const Argument tied = builder.Weight("tied", {1, 1});
  const Argument own = builder.Weight("own", {1, 1});
  const Argument a = builder.Add("aten.linear.default", {x, tied}, {1});
  const Argument b = builder.Add("aten.linear.default", {a, own, frozen}, {1});
  builder.Add("aten.linear.default", {b, tied}, {1});
  return builder.Build();
}

TEST(Reductions, OfAReplicatedStageAreOverItsReplicas) {
  const std::vector<Reduction> reductions =
      MakeReductions(testing::ChainGraph(3), {StageOn({0, 1}, {3, 1}), StageOn({2, 3}, {2})});
  ASSERT_EQ(reductions.size(), 1u) << "stage 1 runs on one device";
  EXPECT_THAT(reductions[0].devices, ElementsAre(DeviceId(1), DeviceId(3)));
  EXPECT_THAT(reductions[0].stages, ElementsAre(StageId(0)));
  EXPECT_THAT(reductions[0].parameters, ElementsAre(ParameterId(0), ParameterId(1)));
  EXPECT_EQ(reductions[0].bytes, 2 * 4);
  EXPECT_FALSE(reductions[0].gradient_norm);
}

TEST(Reductions, TheLastStageComesFirst) {
  const std::vector<Reduction> reductions =
      MakeReductions(testing::ChainGraph(3),
                     {StageOn({0}, {0, 1}), StageOn({1}, {2, 3}), StageOn({2, 3}, {4, 5})});
  ASSERT_EQ(reductions.size(), 3u);
  for (int64_t i = 0; i < 3; ++i) EXPECT_THAT(reductions[i].stages, ElementsAre(StageId(2 - i)));
}

TEST(Reductions, ATiedParameterIsSummedOverItsStages) {
  const std::vector<Reduction> reductions =
      MakeReductions(TiedGraph(), {StageOn({0}, {0}), StageOn({1}, {1, 2}), StageOn({2}, {3})});
  ASSERT_EQ(reductions.size(), 2u);
  EXPECT_THAT(reductions[0].stages, ElementsAre(StageId(1)));
  EXPECT_THAT(reductions[0].parameters, ElementsAre(ParameterId(2))) << "not the frozen one";
  EXPECT_EQ(reductions[0].bytes, 4);
  EXPECT_THAT(reductions[1].stages, ElementsAre(StageId(0), StageId(2)));
  EXPECT_THAT(reductions[1].parameters, ElementsAre(ParameterId(1)));
  EXPECT_THAT(reductions[1].devices, ElementsAre(DeviceId(0), DeviceId(3)));
}

TEST(Reductions, StagesOfOneDeviceNeedNone) {
  EXPECT_THAT(MakeReductions(TiedGraph(), {StageOn({0, 1}, {0}), StageOn({2}, {0})}), IsEmpty());
}

TEST(Reductions, PlanningOnlyNodesAddBytesWithoutParameters) {
  const std::vector<Reduction> reductions =
      MakeReductions(testing::TwoProfiledNodes(), {StageOn({0, 1}, {0, 1})});
  ASSERT_EQ(reductions.size(), 1u);
  EXPECT_EQ(reductions[0].bytes, 2 * 400);
  EXPECT_THAT(reductions[0].parameters, IsEmpty());
}

TEST(Reductions, TheNormIsOneNumberOverAllDevices) {
  const Reduction norm = MakeNormReduction({StageOn({0}, {2, 0}), StageOn({1}, {0, 1})});
  EXPECT_TRUE(norm.gradient_norm);
  EXPECT_EQ(norm.bytes, 8);
  EXPECT_THAT(norm.devices, ElementsAre(DeviceId(0), DeviceId(1), DeviceId(2)));
  EXPECT_THAT(norm.stages, ElementsAre(StageId(0), StageId(1)));
  EXPECT_THAT(norm.parameters, IsEmpty());
}

}  // namespace
}  // namespace stagewright
