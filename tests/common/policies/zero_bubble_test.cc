// Zero-bubble schedules: their rules on chains, and that they run on any graph of stages.
#include "common/policies/zero_bubble.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "common/lowering/lower.h"
#include "common/strategy/check_strategy.h"
#include "common/strategy/orders.h"
#include "common/validation/validate.h"
#include "tests/support/fake_driver.h"
#include "tests/support/layer_graphs.h"
#include "tests/support/random.h"
#include "tests/support/schedule_cases.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

Strategy Chain(const Graph& graph, const std::vector<int32_t>& devices, int64_t micro_batches) {
  std::vector<testing::StageSpec> specs;
  for (size_t s = 0; s < devices.size(); ++s)
    specs.push_back({{static_cast<int32_t>(s)}, {devices[s]}});
  specs.back().nodes.push_back(static_cast<int32_t>(devices.size()));
  return testing::MakeStages(graph, micro_batches, specs);
}

// Most micro-batches that a device holds until their weight halves, over its stages.
std::vector<int64_t> MostHeld(const std::vector<DeviceOrder>& orders) {
  std::vector<int64_t> most;
  for (const DeviceOrder& order : orders) {
    int64_t held = 0;
    most.push_back(0);
    for (const ComputeStep& step : order.steps) {
      held += step.pass == Pass::kForward ? 1 : step.pass == Pass::kBackwardWeight ? -1 : 0;
      most.back() = std::max(most.back(), held);
    }
  }
  return most;
}

TEST(ZeroBubbleH1, FourStages) {
  const Graph graph = testing::ChainGraph(4);
  EXPECT_EQ(OrdersToText(*ZeroBubbleH1Orders(graph, Chain(graph, {0, 1, 2, 3}, 8))),
            "device 0: F0.0 F0.1 F0.2 F0.3 I0.0 W0.0 F0.4 I0.1 W0.1 F0.5 I0.2 W0.2 F0.6 I0.3 "
            "W0.3 F0.7 I0.4 W0.4 I0.5 W0.5 I0.6 W0.6 I0.7 W0.7\n"
            "device 1: F1.0 F1.1 F1.2 I1.0 F1.3 I1.1 W1.0 F1.4 I1.2 W1.1 F1.5 I1.3 W1.2 F1.6 "
            "I1.4 W1.3 F1.7 I1.5 W1.4 I1.6 W1.5 I1.7 W1.6 W1.7\n"
            "device 2: F2.0 F2.1 I2.0 F2.2 I2.1 F2.3 I2.2 W2.0 F2.4 I2.3 W2.1 F2.5 I2.4 W2.2 "
            "F2.6 I2.5 W2.3 F2.7 I2.6 W2.4 I2.7 W2.5 W2.6 W2.7\n"
            "device 3: F3.0 I3.0 F3.1 I3.1 F3.2 I3.2 F3.3 I3.3 W3.0 F3.4 I3.4 W3.1 F3.5 I3.5 "
            "W3.2 F3.6 I3.6 W3.3 F3.7 I3.7 W3.4 W3.5 W3.6 W3.7\n");
}

TEST(ZeroBubbleH1, HoldsNoMoreThan1F1B) {
  for (int32_t devices = 1; devices <= 6; ++devices) {
    for (int64_t micro_batches : {1, 3, 12}) {
      const Graph graph = testing::ChainGraph(devices);
      std::vector<int32_t> places;
      for (int32_t d = 0; d < devices; ++d) places.push_back(d);
      Strategy strategy = Chain(graph, places, micro_batches);
      const Strategy plain = strategy;  // 1F1B.
      const auto orders = *ZeroBubbleH1Orders(graph, strategy);
      SetOrders(graph, orders, strategy);
      for (size_t s = 0; s < plain.stages.size(); ++s)
        EXPECT_EQ(strategy.stages[s].schedule, plain.stages[s].schedule);
      EXPECT_THAT(MostHeld(orders), ::testing::Each(std::min<int64_t>(devices, micro_batches)));
    }
  }
}

TEST(ZeroBubbleV, HoldsAsManyAsThePathHasStages) {
  const Graph graph = testing::ChainGraph(8);
  const Strategy strategy = Chain(graph, {0, 1, 2, 3, 3, 2, 1, 0}, 12);
  EXPECT_THAT(MostHeld(*ZeroBubbleVOrders(graph, strategy)), ::testing::Each(::testing::Le(8)));
}

TEST(ZeroBubble, RandomGraphs) {
  testing::Rng rng(42);
  int recompute = 0;
  for (int i = 0; i < 500; ++i) {
    SCOPED_TRACE(i);
    testing::RandomCase random = testing::MakeUniformCase(rng);
    auto orders = i % 2 == 0 ? ZeroBubbleH1Orders(random.graph, random.strategy)
                             : ZeroBubbleVOrders(random.graph, random.strategy);
    ASSERT_EQ(orders.status(), absl::OkStatus());
    SetOrders(random.graph, *std::move(orders), random.strategy);
    ASSERT_EQ(CheckStrategy(random.graph, random.cluster, random.strategy), absl::OkStatus());
    const auto program =
        Lower(random.graph, random.strategy, testing::FixedCosts(5, 3, random.graph), {});
    ASSERT_EQ(program.status(), absl::OkStatus());
    ASSERT_EQ(Validate(*program, {}), absl::OkStatus());
    EXPECT_TRUE(testing::RunWithRandomDelays(*program, rng, 20).done);
    for (const Stage& stage : random.strategy.stages) recompute += stage.recompute;
  }
  EXPECT_GT(recompute, 100);
}

}  // namespace
}  // namespace stagewright
