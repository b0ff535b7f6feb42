#include "common/cost/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using testing::GraphBuilder;
using ::testing::IsEmpty;
using testing::NodeOf;

TEST(Parameters, ResidentBytesByOptimizer) {
  Parameter parameter;
  parameter.name = "w";
  parameter.shape = {10, 10};
  EXPECT_EQ(ResidentBytes(parameter, Optimizer::kSgd), 800);
  EXPECT_EQ(ResidentBytes(parameter, Optimizer::kSgdMomentum), 1200);
  EXPECT_EQ(ResidentBytes(parameter, Optimizer::kAdam), 1600);
  parameter.trainable = false;
  EXPECT_EQ(ResidentBytes(parameter, Optimizer::kAdam), 400);
}

TEST(Parameters, OptimizerStateIsWhatReplicasShareOut) {
  Parameter parameter;
  parameter.shape = {10, 10};
  EXPECT_EQ(OptimizerStateBytes(parameter, Optimizer::kSgd), 0);
  EXPECT_EQ(OptimizerStateBytes(parameter, Optimizer::kAdam), 800);
  const HeldBytes held = BytesHeld(parameter, Optimizer::kAdam);
  EXPECT_EQ(held.ResidentOn(3, OptimizerSharding::kNone), 1600);
  EXPECT_EQ(held.ResidentOn(1, OptimizerSharding::kStates), 1600);
  EXPECT_EQ(held.ResidentOn(3, OptimizerSharding::kStates), 800 + 267);
  const HeldBytes least = LeastBytesHeld(parameter, Optimizer::kAdam, OptimizerSharding::kStates);
  EXPECT_EQ(least.resident, 400);
  EXPECT_EQ(least.trained, 0);
  EXPECT_EQ(least.gradients, 400);
  EXPECT_EQ(held.ResidentOn(3, OptimizerSharding::kGradients), 800 + 267);
  parameter.trainable = false;
  EXPECT_EQ(OptimizerStateBytes(parameter, Optimizer::kAdam), 0);
}

TEST(Parameters, GradientsThatPassLeaveRoomForWhatIsSaved) {
  EXPECT_EQ(PassingSaves(Bytes(400), Bytes(1000), 1), 0) << "no one to share with";
  EXPECT_EQ(PassingSaves(Bytes(400), Bytes(1000), 3), 400 - 134);
  EXPECT_EQ(PassingSaves(Bytes(400), Bytes(100), 2), 100 - 200) << "the sums come on top";
  ProfiledCost cost;
  cost.parameter_bytes = 400;
  EXPECT_EQ(LeastBytesHeld(cost, Optimizer::kAdam, OptimizerSharding::kStates).resident, 800);
  EXPECT_EQ(LeastBytesHeld(cost, Optimizer::kAdam, OptimizerSharding::kGradients).resident, 400);
  cost.resident_bytes = Bytes(1000);
  EXPECT_EQ(GradientBytes(cost), 0) << "one figure for everything";
  EXPECT_EQ(LeastBytesHeld(cost, Optimizer::kAdam, OptimizerSharding::kGradients).resident, 1000);
}

TEST(Parameters, SharedOnesCountOnce) {
  GraphBuilder builder("tied");
  const Argument x = builder.Feature("x", {8});
  const Argument w = builder.Weight("w", {8, 8});
  const Argument v = builder.Weight("v", {8, 8});
  const Argument a = builder.Add("aten.linear.default", {x, v}, {8});
  const Argument b = builder.Add("aten.linear.default", {a, w}, {8});
  const Argument c = builder.Add("aten.linear.default", {b, w}, {8});
  const Graph graph = builder.Build();
  EXPECT_THAT(ParametersOf(graph, {NodeOf(c), NodeOf(b), NodeOf(a)}),
              ElementsAre(ParameterId(0), ParameterId(1)));
  EXPECT_THAT(ParametersOf(graph, {NodeOf(a)}), ElementsAre(ParameterId(1)));
  EXPECT_THAT(ParametersOf(graph, {}), IsEmpty());
}

}  // namespace
}  // namespace stagewright
