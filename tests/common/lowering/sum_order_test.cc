#include "common/lowering/sum_order.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/layer_graphs.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::ChainGraph;
using testing::MakeStages;

// Two stages, whose replicas are on these devices, with two micro-batches each.
struct Case {
  Case(std::vector<int32_t> first, std::vector<int32_t> second)
      : strategy(
            MakeStages(graph, 4, {{{0}, std::move(first), 2}, {{1, 2}, std::move(second), 2}})),
        slots(strategy) {
    for (const Stage& stage : strategy.stages)
      stages.push_back({stage.nodes, stage.replicated, stage.devices, stage.micro_batch});
    channels = *MakeChannels(types, strategy, stages, slots, true);
  }

  // "1.0" is the sum of micro-batch 0 of stage 1.
  std::string Order(const std::vector<std::vector<Task>>& orders,
                    const std::vector<bool>& summed = {true, true}) const {
    std::string text;
    for (const MicroBatchSum& sum : SumOrder(orders, stages, slots, channels, summed))
      absl::StrAppend(&text, text.empty() ? "" : " ", sum.stage.value(), ".", sum.index);
    return text;
  }
  std::vector<std::vector<Task>> Planned() const {
    return DeviceOrders(strategy, stages, slots, channels);
  }

  Graph graph = ChainGraph(2);
  MessageTypes types{graph, Precision::kGraph};
  Strategy strategy;
  Slots slots;
  std::vector<ProgramStage> stages;
  Channels channels;
};

TEST(SumOrder, FollowsThePasses) {
  const Case chain({0, 1}, {2, 3});
  EXPECT_EQ(chain.Order(chain.Planned()), "1.0 0.0 1.1 0.1");
  EXPECT_EQ(chain.Order(chain.Planned(), {true, false}), "0.0 0.1");
  EXPECT_EQ(chain.Order(chain.Planned(), {false, false}), "");
}

TEST(SumOrder, IsOneForDevicesOfSeveralStages) {
  const Case shared({0, 1}, {0, 1});
  EXPECT_EQ(shared.Order(shared.Planned()), "1.0 0.0 1.1 0.1");
}

// Replicas that run backward passes in opposite orders would wait for each other: their sums have
// an order all the same, for Validate to say what is wrong.
TEST(SumOrder, WhatCannotBeReachedComesLast) {
  const Case chain({0, 1}, {2});
  auto orders = chain.Planned();
  const auto backward = [&](size_t device) {
    std::vector<Task*> passes;
    for (Task& task : orders[device]) {
      if (task.kind == ActionKind::kBackward) passes.push_back(&task);
    }
    return passes;
  };
  std::swap(*backward(1)[0], *backward(1)[1]);
  EXPECT_EQ(chain.Order(orders, {true, false}), "0.0 0.1");
}

}  // namespace
}  // namespace stagewright
