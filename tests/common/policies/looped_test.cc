// Looped schedules against the rules and examples of the papers.
#include "common/policies/looped.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "common/lowering/compute_order.h"
#include "common/lowering/lower.h"
#include "common/strategy/check_orders.h"
#include "common/strategy/check_strategy.h"
#include "common/strategy/orders.h"
#include "common/validation/validate.h"
#include "tests/support/fake_driver.h"
#include "tests/support/graph_builder.h"
#include "tests/support/layer_graphs.h"
#include "tests/support/random.h"
#include "tests/support/schedule_cases.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

// A chain of devices * loops stages of one layer, looping over the devices.
struct Looped {
  Looped(int32_t devices, int32_t loops, int64_t micro_batches)
      : graph(testing::ChainGraph(devices * loops)) {
    std::vector<testing::StageSpec> specs;
    for (int32_t s = 0; s < devices * loops; ++s) specs.push_back({{s}, {s % devices}});
    specs.back().nodes.push_back(devices * loops);  // The loss.
    strategy = testing::MakeStages(graph, micro_batches, specs);
  }
  std::vector<DeviceOrder> Orders(int64_t loop_batch, std::vector<int64_t> prefetch) const {
    auto orders = LoopedOrders(graph, strategy, {loop_batch, std::move(prefetch)});
    EXPECT_EQ(orders.status(), absl::OkStatus());
    Strategy checked = strategy;
    SetOrders(graph, *orders, checked);
    EXPECT_EQ(CheckOrders(graph, checked), absl::OkStatus());
    return *std::move(orders);
  }
  Graph graph;
  Strategy strategy;
};

// Forwards before the first backward, per device.
std::vector<int64_t> WarmUps(const std::vector<DeviceOrder>& orders) {
  std::vector<int64_t> counts;
  for (const DeviceOrder& order : orders) {
    const auto first = std::find_if(order.steps.begin(), order.steps.end(),
                                    [](const auto& step) { return step.pass == Pass::kBackward; });
    counts.push_back(first - order.steps.begin());
  }
  return counts;
}

// The orders of Pfeife's appendix B.2, for four devices: (B, N_l, B_l, B_f).
TEST(LoopedOrders, GPipe) {
  EXPECT_EQ(OrdersToText(Looped(4, 1, 8).Orders(8, {4, 5, 6, 7})),
            "device 0: F0.0 F0.1 F0.2 F0.3 F0.4 F0.5 F0.6 F0.7 B0.0 B0.1 B0.2 B0.3 B0.4 B0.5 "
            "B0.6 B0.7\n"
            "device 1: F1.0 F1.1 F1.2 F1.3 F1.4 F1.5 F1.6 F1.7 B1.0 B1.1 B1.2 B1.3 B1.4 B1.5 "
            "B1.6 B1.7\n"
            "device 2: F2.0 F2.1 F2.2 F2.3 F2.4 F2.5 F2.6 F2.7 B2.0 B2.1 B2.2 B2.3 B2.4 B2.5 "
            "B2.6 B2.7\n"
            "device 3: F3.0 F3.1 F3.2 F3.3 F3.4 F3.5 F3.6 F3.7 B3.0 B3.1 B3.2 B3.3 B3.4 B3.5 "
            "B3.6 B3.7\n");
}

TEST(LoopedOrders, PipeDream) {
  EXPECT_EQ(OrdersToText(Looped(4, 1, 7).Orders(8, {0, 1, 1, 0})),
            "device 0: F0.0 F0.1 F0.2 F0.3 B0.0 F0.4 B0.1 F0.5 B0.2 F0.6 B0.3 B0.4 B0.5 B0.6\n"
            "device 1: F1.0 F1.1 F1.2 F1.3 B1.0 F1.4 B1.1 F1.5 B1.2 F1.6 B1.3 B1.4 B1.5 B1.6\n"
            "device 2: F2.0 F2.1 F2.2 B2.0 F2.3 B2.1 F2.4 B2.2 F2.5 B2.3 F2.6 B2.4 B2.5 B2.6\n"
            "device 3: F3.0 B3.0 F3.1 B3.1 F3.2 B3.2 F3.3 B3.3 F3.4 B3.4 F3.5 B3.5 F3.6 B3.6\n");
}

TEST(LoopedOrders, Dapple) {
  EXPECT_EQ(OrdersToText(Looped(4, 1, 6).Orders(6, {0, 0, 0, 0})),
            "device 0: F0.0 F0.1 F0.2 F0.3 B0.0 F0.4 B0.1 F0.5 B0.2 B0.3 B0.4 B0.5\n"
            "device 1: F1.0 F1.1 F1.2 B1.0 F1.3 B1.1 F1.4 B1.2 F1.5 B1.3 B1.4 B1.5\n"
            "device 2: F2.0 F2.1 B2.0 F2.2 B2.1 F2.3 B2.2 F2.4 B2.3 F2.5 B2.4 B2.5\n"
            "device 3: F3.0 B3.0 F3.1 B3.1 F3.2 B3.2 F3.3 B3.3 F3.4 B3.4 F3.5 B3.5\n");
}

TEST(LoopedOrders, TeraPipe) {
  EXPECT_EQ(OrdersToText(Looped(4, 2, 8).Orders(4, {0, 1, 2, 3})),
            "device 0: F0.0 F0.1 F0.2 F0.3 F4.0 F4.1 F4.2 F4.3 B4.0 F0.4 B4.1 F0.5 B4.2 F0.6 "
            "B4.3 F0.7 B0.0 F4.4 B0.1 F4.5 B0.2 F4.6 B0.3 F4.7 B4.4 B4.5 B4.6 B4.7 B0.4 B0.5 "
            "B0.6 B0.7\n"
            "device 1: F1.0 F1.1 F1.2 F1.3 F5.0 F5.1 F5.2 F5.3 B5.0 F1.4 B5.1 F1.5 B5.2 F1.6 "
            "B5.3 F1.7 B1.0 F5.4 B1.1 F5.5 B1.2 F5.6 B1.3 F5.7 B5.4 B5.5 B5.6 B5.7 B1.4 B1.5 "
            "B1.6 B1.7\n"
            "device 2: F2.0 F2.1 F2.2 F2.3 F6.0 F6.1 F6.2 F6.3 B6.0 F2.4 B6.1 F2.5 B6.2 F2.6 "
            "B6.3 F2.7 B2.0 F6.4 B2.1 F6.5 B2.2 F6.6 B2.3 F6.7 B6.4 B6.5 B6.6 B6.7 B2.4 B2.5 "
            "B2.6 B2.7\n"
            "device 3: F3.0 F3.1 F3.2 F3.3 F7.0 F7.1 F7.2 F7.3 B7.0 F3.4 B7.1 F3.5 B7.2 F3.6 "
            "B7.3 F3.7 B3.0 F7.4 B3.1 F7.5 B3.2 F7.6 B3.3 F7.7 B7.4 B7.5 B7.6 B7.7 B3.4 B3.5 "
            "B3.6 B3.7\n");
}

TEST(LoopedOrders, MegatronInterleaved) {
  EXPECT_EQ(OrdersToText(Looped(4, 2, 8).Orders(4, {3, 2, 1, 0})),
            "device 0: F0.0 F0.1 F0.2 F0.3 F4.0 F4.1 F4.2 F4.3 F0.4 F0.5 F0.6 B4.0 F0.7 B4.1 "
            "F4.4 B4.2 F4.5 B4.3 F4.6 B0.0 F4.7 B0.1 B0.2 B0.3 B4.4 B4.5 B4.6 B4.7 B0.4 B0.5 "
            "B0.6 B0.7\n"
            "device 1: F1.0 F1.1 F1.2 F1.3 F5.0 F5.1 F5.2 F5.3 F1.4 B5.0 F1.5 B5.1 F1.6 B5.2 "
            "F1.7 B5.3 F5.4 B1.0 F5.5 B1.1 F5.6 B1.2 F5.7 B1.3 B5.4 B5.5 B5.6 B5.7 B1.4 B1.5 "
            "B1.6 B1.7\n"
            "device 2: F2.0 F2.1 F2.2 F2.3 F6.0 F6.1 F6.2 B6.0 F6.3 B6.1 F2.4 B6.2 F2.5 B6.3 "
            "F2.6 B2.0 F2.7 B2.1 F6.4 B2.2 F6.5 B2.3 F6.6 B6.4 F6.7 B6.5 B6.6 B6.7 B2.4 B2.5 "
            "B2.6 B2.7\n"
            "device 3: F3.0 F3.1 F3.2 F3.3 F7.0 B7.0 F7.1 B7.1 F7.2 B7.2 F7.3 B7.3 F3.4 B3.0 "
            "F3.5 B3.1 F3.6 B3.2 F3.7 B3.3 F7.4 B7.4 F7.5 B7.5 F7.6 B7.6 F7.7 B7.7 B3.4 B3.5 "
            "B3.6 B3.7\n");
}

TEST(LoopedOrders, BreadthFirst) {
  EXPECT_EQ(OrdersToText(Looped(4, 4, 8).Orders(4, {4, 5, 6, 7})),
            "device 0: F0.0 F0.1 F0.2 F0.3 F4.0 F4.1 F4.2 F4.3 F8.0 F8.1 F8.2 F8.3 F12.0 "
            "F12.1 F12.2 F12.3 F0.4 F0.5 F0.6 F0.7 B12.0 F4.4 B12.1 F4.5 B12.2 F4.6 B12.3 "
            "F4.7 B8.0 F8.4 B8.1 F8.5 B8.2 F8.6 B8.3 F8.7 B4.0 F12.4 B4.1 F12.5 B4.2 F12.6 "
            "B4.3 F12.7 B0.0 B0.1 B0.2 B0.3 B12.4 B12.5 B12.6 B12.7 B8.4 B8.5 B8.6 B8.7 B4.4 "
            "B4.5 B4.6 B4.7 B0.4 B0.5 B0.6 B0.7\n"
            "device 1: F1.0 F1.1 F1.2 F1.3 F5.0 F5.1 F5.2 F5.3 F9.0 F9.1 F9.2 F9.3 F13.0 "
            "F13.1 F13.2 F13.3 F1.4 F1.5 F1.6 F1.7 B13.0 F5.4 B13.1 F5.5 B13.2 F5.6 B13.3 "
            "F5.7 B9.0 F9.4 B9.1 F9.5 B9.2 F9.6 B9.3 F9.7 B5.0 F13.4 B5.1 F13.5 B5.2 F13.6 "
            "B5.3 F13.7 B1.0 B1.1 B1.2 B1.3 B13.4 B13.5 B13.6 B13.7 B9.4 B9.5 B9.6 B9.7 B5.4 "
            "B5.5 B5.6 B5.7 B1.4 B1.5 B1.6 B1.7\n"
            "device 2: F2.0 F2.1 F2.2 F2.3 F6.0 F6.1 F6.2 F6.3 F10.0 F10.1 F10.2 F10.3 F14.0 "
            "F14.1 F14.2 F14.3 F2.4 F2.5 F2.6 F2.7 B14.0 F6.4 B14.1 F6.5 B14.2 F6.6 B14.3 "
            "F6.7 B10.0 F10.4 B10.1 F10.5 B10.2 F10.6 B10.3 F10.7 B6.0 F14.4 B6.1 F14.5 B6.2 "
            "F14.6 B6.3 F14.7 B2.0 B2.1 B2.2 B2.3 B14.4 B14.5 B14.6 B14.7 B10.4 B10.5 B10.6 "
            "B10.7 B6.4 B6.5 B6.6 B6.7 B2.4 B2.5 B2.6 B2.7\n"
            "device 3: F3.0 F3.1 F3.2 F3.3 F7.0 F7.1 F7.2 F7.3 F11.0 F11.1 F11.2 F11.3 F15.0 "
            "F15.1 F15.2 F15.3 F3.4 F3.5 F3.6 F3.7 B15.0 F7.4 B15.1 F7.5 B15.2 F7.6 B15.3 "
            "F7.7 B11.0 F11.4 B11.1 F11.5 B11.2 F11.6 B11.3 F11.7 B7.0 F15.4 B7.1 F15.5 B7.2 "
            "F15.6 B7.3 F15.7 B3.0 B3.1 B3.2 B3.3 B15.4 B15.5 B15.6 B15.7 B11.4 B11.5 B11.6 "
            "B11.7 B7.4 B7.5 B7.6 B7.7 B3.4 B3.5 B3.6 B3.7\n");
}

// Figure 3: the prefetched forwards come before the first backward.
TEST(LoopedOrders, Figure3) {
  EXPECT_THAT(WarmUps(Looped(4, 2, 8).Orders(4, {2, 2, 1, 0})),
              ::testing::ElementsAre(4 + 4 + 2, 4 + 3 + 2, 4 + 2 + 1, 4 + 1 + 0));
}

TEST(LoopedOrders, WithoutPrefetchTheWarmUpIsMinimal) {
  for (int32_t devices = 1; devices <= 5; ++devices) {
    for (int32_t loops = 1; loops <= 3; ++loops) {
      for (int64_t batch = devices; batch <= 8; ++batch) {
        const std::vector<int64_t> counts =
            WarmUps(Looped(devices, loops, 2 * batch).Orders(batch, {}));
        for (int32_t d = 0; d < devices; ++d)
          EXPECT_EQ(counts[d], (loops - 1) * batch + devices - d) << devices << " " << loops;
      }
    }
  }
}

// Megatron-LM counts (devices - rank - 1) * 2 + (loops - 1) * devices forwards and then alternates,
// a forward first.
TEST(LoopedOrders, MegatronsOwnCountOfWarmUpForwards) {
  for (int64_t devices : {2, 4, 6}) {
    for (int64_t loops : {2, 3}) {
      std::vector<int64_t> prefetch, expected;
      for (int64_t rank = 0; rank < devices; ++rank) {
        prefetch.push_back(devices - rank - 1);
        expected.push_back((devices - rank - 1) * 2 + (loops - 1) * devices + 1);
      }
      const Looped looped(static_cast<int32_t>(devices), static_cast<int32_t>(loops), 2 * devices);
      EXPECT_EQ(WarmUps(looped.Orders(devices, prefetch)), expected);
    }
  }
}

TEST(LoopedOrders, ASingleLoopIs1F1B) {
  const Looped chain(5, 1, 9);
  for (const DeviceOrder& order : chain.Orders(9, {})) {
    const StageId stage = order.steps.front().stage;
    const auto policy =
        StageOrder(9, 1, chain.strategy.stages[stage.index()].schedule, /*has_backward=*/true);
    ASSERT_EQ(order.steps.size(), policy.size());
    for (size_t i = 0; i < policy.size(); ++i) {
      EXPECT_EQ(order.steps[i].pass == Pass::kBackward, policy[i].backward);
      EXPECT_EQ(order.steps[i].index, policy[i].index);
    }
  }
}

// Every schedule on random graphs of stages: orders hold, programs run.
TEST(LoopedOrders, RandomGraphs) {
  testing::Rng rng(41);
  for (int i = 0; i < 500; ++i) {
    SCOPED_TRACE(i);
    testing::RandomCase random = testing::MakeUniformCase(rng);
    LoopedSchedule schedule;
    schedule.loop_batch = testing::Uniform(rng, 1, 8);
    std::set<DeviceId> used;
    for (const Stage& stage : random.strategy.stages)
      used.insert(stage.devices.begin(), stage.devices.end());
    for (size_t d = 0; d < used.size() && i % 2 == 0; ++d)
      schedule.prefetch.push_back(testing::Uniform(rng, 0, 4));
    auto orders = LoopedOrders(random.graph, random.strategy, schedule);
    ASSERT_EQ(orders.status(), absl::OkStatus());
    SetOrders(random.graph, *std::move(orders), random.strategy);
    ASSERT_EQ(CheckStrategy(random.graph, random.cluster, random.strategy), absl::OkStatus());
    const auto program =
        Lower(random.graph, random.strategy, testing::FixedCosts(5, 3, random.graph), {});
    ASSERT_EQ(program.status(), absl::OkStatus());
    ASSERT_EQ(Validate(*program, {}), absl::OkStatus());
    EXPECT_TRUE(testing::RunWithRandomDelays(*program, rng, 20).done);
  }
}

// Device 0 has a frozen stage and the loss, device 1 what lies between.
TEST(LoopedOrders, StagesWithoutTrainingOnlyRunForward) {
  testing::GraphBuilder builder("frozen");
  const Argument x = builder.Feature("x", {1});
  const Argument frozen =
      builder.Add("aten.linear.default", {x, builder.Weight("frozen", {1, 1}, false)}, {1});
  builder.Loss(builder.Linear(builder.Linear(frozen, 1, 1), 1, 1), {1});
  const Graph graph = builder.Build();
  const Strategy strategy = testing::MakeStages(graph, 3, {{{0}, {0}}, {{1}, {1}}, {{2, 3}, {0}}});
  EXPECT_EQ(OrdersToText(*LoopedOrders(graph, strategy, {2, {}})),
            "device 0: F0.0 F0.1 F2.0 B2.0 F2.1 B2.1 F0.2 F2.2 B2.2\n"
            "device 1: F1.0 F1.1 B1.0 F1.2 B1.1 B1.2\n");
}

TEST(LoopedOrders, NamesWhatIsWrong) {
  const Looped looped(2, 2, 4);
  EXPECT_THAT(std::string(LoopedOrders(looped.graph, looped.strategy, {2, {1}}).status().message()),
              HasSubstr("prefetch has 1 entries for 2 devices"));
  EXPECT_THAT(std::string(LoopedOrders(looped.graph, looped.strategy, {0, {}}).status().message()),
              HasSubstr("loop_batch is 0"));
  Strategy unequal = looped.strategy;
  unequal.stages[2].micro_batch = 2;
  const absl::Status status = LoopedOrders(looped.graph, unequal, {2, {}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("stage 2 has micro-batches of 2 samples"));
}

}  // namespace
}  // namespace stagewright
