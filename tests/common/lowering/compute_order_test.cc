#include "common/lowering/compute_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/lowering/lower.h"
#include "tests/support/layer_graphs.h"
#include "tests/support/schedule_cases.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::ChainGraph;
using testing::MakeStages;

std::string Order(int64_t micro_batches, int64_t micro_batch, int64_t in_flight, int32_t k,
                  bool has_backward = true) {
  return absl::StrJoin(StageOrder(micro_batches, micro_batch, {in_flight, k}, has_backward), " ",
                       [](std::string* out, const MicroBatchTask& task) {
                         absl::StrAppend(out, task.backward ? "B" : "F", task.index);
                       });
}

TEST(StageOrder, Is1F1BAfterWarmUp) {
  EXPECT_EQ(Order(4, 2, 2, 1), "F0 B0 F1 B1 F2 B2 F3 B3");
  EXPECT_EQ(Order(4, 2, 4, 1), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(Order(4, 2, 8, 1), "F0 F1 F2 F3 B0 B1 B2 B3");
}

TEST(StageOrder, AlternatesKBackwardsAndKForwards) {
  EXPECT_EQ(Order(6, 1, 2, 2), "F0 F1 B0 B1 F2 F3 B2 B3 F4 F5 B4 B5");
  EXPECT_EQ(Order(6, 1, 3, 2), "F0 F1 F2 B0 B1 F3 F4 B2 B3 F5 B4 B5");
  EXPECT_EQ(Order(3, 1, 3, 2), "F0 F1 F2 B0 B1 B2");
}

TEST(StageOrder, OnlyForwardsWithoutBackward) { EXPECT_EQ(Order(3, 1, 1, 1, false), "F0 F1 F2"); }

std::string ComputeOf(const Strategy& strategy, const Graph& graph, size_t row) {
  const testing::FixedCosts costs(0, 0, graph);
  const Program program = *Lower(graph, strategy, costs, {});
  std::vector<std::string> actions;
  for (const ProgramAction& action : program.devices[row].body) {
    if (IsCompute(action.action.kind)) actions.push_back(ToString(action.action));
  }
  return absl::StrJoin(actions, " ");
}

TEST(DeviceOrders, AStageAloneKeepsItsPolicy) {
  const Graph graph = ChainGraph(2);
  const Strategy strategy = MakeStages(graph, 3, {{{0}, {0}}, {{1, 2}, {1}}});
  EXPECT_EQ(ComputeOf(strategy, graph, 0), "F0[0,1) F0[1,2) B0[0,1) F0[2,3) B0[1,2) B0[2,3) OS0");
  EXPECT_EQ(ComputeOf(strategy, graph, 1), "F1[0,1) B1[0,1) F1[1,2) B1[1,2) F1[2,3) B1[2,3) OS1");
}

TEST(DeviceOrders, SharedDevicesPreferBackwardsThenTheForwardNearestTheSink) {
  const Graph graph = ChainGraph(2);
  const Strategy strategy = MakeStages(graph, 2, {{{0}, {0}}, {{1, 2}, {0}}});
  EXPECT_EQ(ComputeOf(strategy, graph, 0),
            "F0[0,1) F1[0,1) B1[0,1) F0[1,2) B0[0,1) F1[1,2) B1[1,2) B0[1,2) OS1 OS0");
}

TEST(DeviceOrders, RecomputationComesRightBeforeTheBackward) {
  const Graph graph = ChainGraph(2);
  Strategy strategy = MakeStages(graph, 2, {{{0}, {0}}, {{1, 2}, {1}}});
  strategy.stages[0].recompute = true;
  EXPECT_EQ(ComputeOf(strategy, graph, 0), "F0[0,1) F0[1,2) R0[0,1) B0[0,1) R0[1,2) B0[1,2) OS0");
}

}  // namespace
}  // namespace stagewright
