#include "common/strategy/check_orders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/strategy/check_strategy.h"
#include "common/strategy/orders.h"
#include "common/strategy/strategy.h"
#include "tests/support/clusters.h"
#include "tests/support/graph_builder.h"
#include "tests/support/layer_graphs.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

// Two stages of a chain on devices 0 and 1, three micro-batches of two samples.
class CheckOrdersTest : public ::testing::Test {
 protected:
  CheckOrdersTest() { strategy_.stages[0].recompute = true; }

  absl::Status Check(const std::string& text) {
    const auto orders = ParseOrders(text);
    EXPECT_EQ(orders.status(), absl::OkStatus());
    SetOrders(graph_, *orders, strategy_);
    return CheckStrategy(graph_, cluster_, strategy_);
  }
  void ExpectBroken(const std::string& text, const std::string& message) {
    const absl::Status status = Check(text);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("C4: orders: " + message));
  }

  const std::string first_ = "device 0: F0.0 F0.1 R0.0 B0.0 F0.2 R0.1 B0.1 R0.2 B0.2\n";
  const std::string second_ = "device 1: F1.0 I1.0 F1.1 I1.1 W1.0 W1.1 F1.2 I1.2 W1.2\n";
  Graph graph_ = testing::ChainGraph(2);
  Cluster cluster_ = testing::TestCluster(3);
  Strategy strategy_ = testing::MakeStages(graph_, 6, {{{0}, {0}, 2}, {{1, 2}, {1}, 2}});
};

TEST_F(CheckOrdersTest, AcceptsRecomputationAndHalves) {
  EXPECT_EQ(Check(first_ + second_), absl::OkStatus());
}

TEST_F(CheckOrdersTest, EveryDeviceInUseHasOne) {
  ExpectBroken(first_, "device 1 runs a stage and has none");
  ExpectBroken(second_, "device 0 runs a stage and has none");
  ExpectBroken(first_ + second_ + "device 2:\n", "device 2 has one and runs no stage");
  ExpectBroken(second_ + first_, "device 0 runs a stage and has none");
  ExpectBroken(first_ + first_, "device 0 comes after device 0");
}

TEST_F(CheckOrdersTest, NamesStepsThatDoNotExist) {
  ExpectBroken("device 0: F2.0\n" + second_, "device 0, step 0: stage 2 does not exist");
  ExpectBroken("device 0: F1.0\n" + second_,
               "device 0, step 0: forward of stage 1, micro-batch 0: the stage is not on this");
  ExpectBroken("device 0: F0.3\n" + second_, "device 0, step 0: forward of stage 0, micro-batch 3");
  std::vector<DeviceOrder> orders = *ParseOrders(first_ + second_);
  orders[0].steps[1].pass = static_cast<Pass>(255);
  SetOrders(graph_, orders, strategy_);
  const absl::Status status = CheckStrategy(graph_, cluster_, strategy_);
  EXPECT_THAT(std::string(status.message()), HasSubstr("device 0, step 1: pass 255 is not known"));
}

TEST_F(CheckOrdersTest, EveryMicroBatchOnceInOrder) {
  ExpectBroken("device 0: F0.0 F0.0\n" + second_,
               "device 0, step 1: forward of stage 0, "
               "micro-batch 0: it is there twice");
  ExpectBroken("device 0: F0.0 F0.2\n" + second_,
               "device 0, step 1: forward of stage 0, "
               "micro-batch 2: it comes before that of "
               "micro-batch 1");
  ExpectBroken("device 0: F0.0 F0.1 R0.0 B0.0 R0.1 B0.1\n" + second_,
               "device 0: forward of stage 0, micro-batch 2 is missing");
  ExpectBroken("device 0: F0.0 F0.1 F0.2 R0.0 B0.0 R0.1 B0.1 R0.2\n" + second_,
               "device 0: backward of stage 0, micro-batch 2 is missing");
  ExpectBroken(first_ + "device 1: F1.0 I1.0 F1.1 I1.1 F1.2 I1.2 W1.0 W1.1\n",
               "device 1: backward weight of stage 1, micro-batch 2 is missing");
}

TEST_F(CheckOrdersTest, PassesOfAMicroBatchFollowEachOther) {
  ExpectBroken("device 0: R0.0\n" + second_,
               "device 0, step 0: recompute of stage 0, "
               "micro-batch 0: it comes before the forward pass");
  ExpectBroken("device 0: F0.0 B0.0\n" + second_,
               "device 0, step 1: backward of stage 0, "
               "micro-batch 0: it comes before the "
               "recomputation");
  ExpectBroken(first_ + "device 1: F1.0 W1.0\n",
               "device 1, step 1: backward weight of stage 1, "
               "micro-batch 0: it comes before the input half");
  ExpectBroken(
      first_ + "device 1: F1.0 I1.0 W1.0 F1.1 B1.1\n",
      "device 1, step 4: backward of stage 1, micro-batch 1: the stage has whole and split");
  ExpectBroken(
      first_ + "device 1: F1.0 R1.0\n",
      "device 1, step 1: recompute of stage 1, micro-batch 0: the stage does not recompute");
}

TEST_F(CheckOrdersTest, StagesWithoutTrainingHaveNoBackward) {
  testing::GraphBuilder builder("frozen");
  const Argument x = builder.Feature("x", {1});
  const Argument frozen =
      builder.Add("aten.linear.default", {x, builder.Weight("frozen", {1, 1}, false)}, {1});
  builder.Loss(builder.Linear(frozen, 1, 1), {1});
  const Graph graph = builder.Build();
  Strategy strategy = testing::MakeStages(graph, 2, {{{0}, {0}}, {{1, 2}, {1}}});
  SetOrders(graph, *ParseOrders("device 0: F0.0 F0.1\ndevice 1: F1.0 B1.0 F1.1 B1.1\n"), strategy);
  EXPECT_EQ(CheckOrders(graph, strategy), absl::OkStatus());
  SetOrders(graph, *ParseOrders("device 0: F0.0 B0.0\n"), strategy);
  EXPECT_THAT(std::string(CheckOrders(graph, strategy).message()),
              HasSubstr("the stage has no backward pass"));
}

TEST_F(CheckOrdersTest, InFlightIsWhatTheOrderReaches) {
  ASSERT_EQ(Check(first_ + second_), absl::OkStatus());
  EXPECT_EQ(strategy_.stages[0].schedule.in_flight, 4);
  strategy_.stages[0].schedule.in_flight = 6;
  EXPECT_THAT(std::string(CheckStrategy(graph_, cluster_, strategy_).message()),
              HasSubstr("stage 0 states 6 samples in flight and its order reaches 4"));
}

TEST_F(CheckOrdersTest, AsynchronousStrategiesHaveNone) {
  ASSERT_EQ(Check(first_ + second_), absl::OkStatus());
  strategy_.asynchronous = true;
  EXPECT_THAT(std::string(CheckStrategy(graph_, cluster_, strategy_).message()),
              HasSubstr("an asynchronous strategy has none"));
}

}  // namespace
}  // namespace stagewright
