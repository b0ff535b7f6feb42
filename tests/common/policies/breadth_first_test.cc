// What the schedule of every device is, and that its orders can be run.
#include "common/policies/breadth_first.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

using ::testing::HasSubstr;

// Two devices, two stages each.
Strategy TwoLoops(const Graph& graph, int64_t mini_batch) {
  return testing::MakeStages(graph, mini_batch,
                             {{{0}, {0}}, {{1}, {1}}, {{2}, {0}}, {{3, 4}, {1}}});
}

TEST(BreadthFirst, RunsAllMicroBatchesThroughAStageBeforeTheNext) {
  const Graph graph = testing::ChainGraph(4);
  const auto orders = BreadthFirstOrders(graph, TwoLoops(graph, 3));
  ASSERT_EQ(orders.status(), absl::OkStatus());
  EXPECT_EQ(OrdersToText(*orders),
            "device 0: F0.0 F0.1 F0.2 F2.0 F2.1 F2.2 B2.0 B2.1 B2.2 B0.0 B0.1 B0.2\n"
            "device 1: F1.0 F1.1 F1.2 F3.0 F3.1 F3.2 B3.0 B3.1 B3.2 B1.0 B1.1 B1.2\n");
}

TEST(BreadthFirst, NeedsOneMicroBatchSize) {
  const Graph graph = testing::ChainGraph(4);
  Strategy strategy = TwoLoops(graph, 4);
  strategy.stages[2].micro_batch = 2;
  const absl::Status status = BreadthFirstOrders(graph, strategy).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("stage 2 has micro-batches of 2 samples"));
}

TEST(BreadthFirst, RandomGraphs) {
  testing::Rng rng(43);
  for (int i = 0; i < 100; ++i) {
    SCOPED_TRACE(i);
    testing::RandomCase random = testing::MakeUniformCase(rng);
    auto orders = BreadthFirstOrders(random.graph, random.strategy);
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

}  // namespace
}  // namespace stagewright
