#include "common/policies/execution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/strategy/orders.h"
#include "tests/support/layer_graphs.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

// 0 -> 1 -> 3 and 0 -> 2 -> 3, the loss in the last.
class ExecutionTest : public ::testing::Test {
 protected:
  Graph graph_ = testing::LinearGraph({{}, {0}, {0}, {1, 2}});
  Strategy strategy_ = testing::MakeStages(
      graph_, 4, {{{0}, {0, 1}, 2}, {{1}, {2}, 2}, {{2}, {3}, 2}, {{3, 4}, {2}, 2}});
};

TEST_F(ExecutionTest, PipelinesKnowNeighboursAndDepths) {
  const Pipeline pipeline = *MakePipeline(graph_, strategy_);
  EXPECT_EQ(pipeline.micro_batches, 2);
  EXPECT_EQ(pipeline.depth, 3);
  EXPECT_EQ(pipeline.stages[1].depth, 2);
  EXPECT_THAT(pipeline.stages[3].before, ::testing::ElementsAre(StageId(1), StageId(2)));
  EXPECT_THAT(pipeline.devices.at(DeviceId(2)), ::testing::ElementsAre(StageId(1), StageId(3)));
}

TEST_F(ExecutionTest, AStepWaitsForAllReplicasOfWhatItReads) {
  const Pipeline pipeline = *MakePipeline(graph_, strategy_);
  Execution execution(pipeline);
  EXPECT_FALSE(execution.Ready(StageId(1), DeviceId(2), Pass::kForward));
  execution.Run(DeviceId(0), {StageId(0), Pass::kForward, 0});
  EXPECT_FALSE(execution.Ready(StageId(1), DeviceId(2), Pass::kForward));
  EXPECT_EQ(execution.Done(StageId(0), true), 0);
  execution.Run(DeviceId(1), {StageId(0), Pass::kForward, 0});
  EXPECT_EQ(execution.Done(StageId(0), true), 1);
  EXPECT_TRUE(execution.Ready(StageId(1), DeviceId(2), Pass::kForward));
  EXPECT_FALSE(execution.Ready(StageId(0), DeviceId(0), Pass::kBackward));
}

TEST_F(ExecutionTest, AnOrderThatRunsIsKept) {
  const Pipeline pipeline = *MakePipeline(graph_, strategy_);
  const std::string text =
      "device 0: F0.0 F0.1 B0.0 B0.1\n"
      "device 1: F0.0 F0.1 B0.0 B0.1\n"
      "device 2: F1.0 F1.1 F3.0 B3.0 B1.0 F3.1 B3.1 B1.1\n"
      "device 3: F2.0 F2.1 B2.0 B2.1\n";
  EXPECT_EQ(OrdersToText(MakeRunnable(pipeline, *ParseOrders(text))), text);
}

TEST_F(ExecutionTest, WhatWouldDeadlockTakesTheNextStepThatCanRun) {
  const Pipeline pipeline = *MakePipeline(graph_, strategy_);
  EXPECT_EQ(OrdersToText(MakeRunnable(pipeline, *ParseOrders("device 0: F0.0 B0.0 F0.1 B0.1\n"
                                                             "device 1: F0.0 B0.0 F0.1 B0.1\n"
                                                             "device 2: F1.0 F1.1 F3.0 B3.0 B1.0 "
                                                             "F3.1 B3.1 B1.1\n"
                                                             "device 3: F2.0 F2.1 B2.0 B2.1\n"))),
            "device 0: F0.0 F0.1 B0.0 B0.1\n"
            "device 1: F0.0 F0.1 B0.0 B0.1\n"
            "device 2: F1.0 F1.1 F3.0 B3.0 B1.0 F3.1 B3.1 B1.1\n"
            "device 3: F2.0 F2.1 B2.0 B2.1\n");
}

}  // namespace
}  // namespace stagewright
