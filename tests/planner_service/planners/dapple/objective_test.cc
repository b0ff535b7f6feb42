#include "planner_service/planners/dapple/objective.h"

#include <gtest/gtest.h>

#include "planner_service/planners/dapple/network.h"
#include "tests/support/clusters.h"

namespace stagewright::dapple {
namespace {

// Formulas 1 to 3, worked by hand. Two stages of 3 + 5 and 2 + 4 with a message of 1 each way:
// the paper's stages are F = 3 1 2, B = 5 1 4.
TEST(DappleObjectiveTest, LatencyAroundThePivotStage) {
  const std::vector<StageLoad> stages = {{3, 5, 0, 0}, {2, 4, 0, 1}};
  // M = 2: steady 8 does not exceed 6 + the message's 2, so the last stage is the pivot.
  Pivot pivot = LatencyAsInPaper(stages, 2);
  EXPECT_EQ(pivot.stage, 2);
  EXPECT_DOUBLE_EQ(pivot.warm_up, 3 + 1 + 2);
  EXPECT_DOUBLE_EQ(pivot.steady, 6);
  EXPECT_DOUBLE_EQ(pivot.ending, 5 + 1 + 4);
  // M = 3: 16 > 12 + 2, so the first one is.
  pivot = LatencyAsInPaper(stages, 3);
  EXPECT_EQ(pivot.stage, 0);
  EXPECT_DOUBLE_EQ(pivot.warm_up, 3);
  EXPECT_DOUBLE_EQ(pivot.steady, 16);
  EXPECT_DOUBLE_EQ(pivot.ending, 5);
  EXPECT_DOUBLE_EQ(pivot.Latency(), 24);
}

TEST(DappleObjectiveTest, ANetworkStageCanBeThePivot) {
  const std::vector<StageLoad> stages = {{1, 1, 0, 0}, {1, 1, 0, 50}};
  const Pivot pivot = LatencyAsInPaper(stages, 10);
  EXPECT_EQ(pivot.stage, 1);
  EXPECT_DOUBLE_EQ(pivot.Latency(), (1 + 50) + 9 * 100 + (50 + 1));
}

// T_e: an all-reduce before the pivot comes on top of the backward passes up to it, one behind it
// starts while they run.
TEST(DappleObjectiveTest, AllReducesOverlapWithTheEnding) {
  const std::vector<StageLoad> first = {{9, 9, 7, 0}, {1, 2, 20, 0.5}};
  const Pivot pivot = LatencyAsInPaper(first, 8);
  EXPECT_EQ(pivot.stage, 0);
  // max(7 + 9, 0 - 9 - 0.5, 20 - 9 - 0.5 - 2)
  EXPECT_DOUBLE_EQ(pivot.ending, 16);
  const std::vector<StageLoad> late = {{9, 9, 7, 0}, {1, 2, 40, 0.5}};
  EXPECT_DOUBLE_EQ(LatencyAsInPaper(late, 8).ending, 40 - 9 - 0.5 - 2);
  const std::vector<StageLoad> last = {{1, 1, 30, 0}, {9, 9, 0, 0.5}};
  EXPECT_DOUBLE_EQ(LatencyAsInPaper(last, 8).ending, 30 + 1 + 0.5 + 9);
}

// The printed formula 2 subtracts the pivot stage's own backward pass, too.
TEST(DappleObjectiveTest, AsPrintedTheSumOfThePivotOverlapsWithItsBackwardPass) {
  const auto printed = [](const std::vector<StageLoad>& stages) {
    return LatencyAsInPaper(stages, 8, PivotSum::kAsPrinted);
  };
  // max(15 - 9, 0 - 9 - 0.5, 10 - 9 - 0.5 - 2)
  const Pivot first = printed({{9, 9, 15, 0}, {1, 2, 10, 0.5}});
  EXPECT_EQ(first.stage, 0);
  EXPECT_DOUBLE_EQ(first.ending, 15 - 9);
  EXPECT_DOUBLE_EQ(printed({{9, 9, 7, 0}, {1, 2, 20, 0.5}}).ending, 20 - 9 - 0.5 - 2);
  // Stages before the pivot add their passes as ever.
  EXPECT_DOUBLE_EQ(printed({{1, 1, 30, 0}, {9, 9, 0, 0.5}}).ending, 30 + 1 + 0.5 + 9);
  EXPECT_DOUBLE_EQ(printed({{2, 3, 1, 0}}).ending, 1 - 3);
}

TEST(DappleObjectiveTest, OneStageIsDataParallelism) {
  const Pivot pivot = LatencyAsInPaper({{2, 3, 11, 0}}, 4);
  EXPECT_DOUBLE_EQ(pivot.Latency(), 4 * 5 + 11);
}

TEST(DappleObjectiveTest, TheProgramsFormula) {
  CodedPlan plan;
  plan.stages = {{3, 5, 4, 0}, {2, 4, 20, 1}};
  plan.one_device = 30;
  plan.micro_batches = 5;
  EXPECT_DOUBLE_EQ(LatencyAsCoded(plan), 8 * 4 + 30 + 1 + 12);
  plan.stages[1].transfer = 5;  // Limits the block both ways.
  EXPECT_DOUBLE_EQ(LatencyAsCoded(plan), 10 * 4 + 30 + 5 + 10);
  plan.steady_transfers = 1;
  EXPECT_DOUBLE_EQ(LatencyAsCoded(plan), 8 * 4 + 30 + 5 + 12);
}

std::vector<DeviceId> Devices(int32_t begin, int32_t end) {
  std::vector<DeviceId> devices;
  for (int32_t d = begin; d < end; ++d) devices.push_back(DeviceId(d));
  return devices;
}

TEST(DappleNetworkTest, TheProgramsBandwidths) {
  const CodedNetwork network({4, 4});
  EXPECT_DOUBLE_EQ(network.AllReduce(Devices(0, 1)).per_byte, 0);
  EXPECT_DOUBLE_EQ(network.AllReduce(Devices(0, 4)).per_byte, 1.5 / 25e9 / 2);
  EXPECT_DOUBLE_EQ(network.AllReduce(Devices(0, 8)).per_byte, 1.75 / 3e9);
  EXPECT_DOUBLE_EQ(network.Transfer(Devices(0, 2), Devices(2, 4)).per_byte, 1 / 25e9);
  EXPECT_DOUBLE_EQ(network.Transfer(Devices(0, 4), Devices(4, 8)).per_byte, 1 / 1e9);
  EXPECT_DOUBLE_EQ(network.Transfer(Devices(3, 5), Devices(5, 8)).per_byte, 0.5 / 1e9);
  EXPECT_DOUBLE_EQ(network.Transfer(Devices(0, 2), Devices(2, 8)).per_byte, 1 / 3e9);
}

TEST(DappleNetworkTest, MessagesAreSplitAndShareLinks) {
  const Cluster cluster = testing::FlatCluster(8, 16 * kGiB, 1000, 1e9);
  const ClusterNetwork network(cluster);
  // One port each: one to one all bytes, one to two all bytes out, two to two half of them.
  EXPECT_NEAR(network.Transfer(Devices(0, 1), Devices(1, 2)).per_byte, 1e-9, 1e-18);
  EXPECT_NEAR(network.Transfer(Devices(0, 1), Devices(1, 3)).per_byte, 1e-9, 1e-18);
  EXPECT_NEAR(network.Transfer(Devices(0, 2), Devices(2, 4)).per_byte, 0.5e-9, 1e-18);
  EXPECT_NEAR(network.Transfer(Devices(0, 3), Devices(3, 5)).per_byte, 0.5e-9, 1e-18);
  const Affine ring = network.AllReduce(Devices(0, 4));
  EXPECT_NEAR(ring.per_byte, 1.5e-9, 1e-15);
  EXPECT_GT(ring.latency, 0);
}

}  // namespace
}  // namespace stagewright::dapple
