#include "common/strategy/orders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/strategy/check_orders.h"
#include "common/strategy/strategy.h"
#include "tests/support/layer_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_orders.h"
#include "tests/support/schedule_cases.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

TEST(SetOrders, StatesTheInFlightSamplesThatAreReached) {
  const Graph graph = testing::ChainGraph(2);
  Strategy strategy = testing::MakeStages(graph, 8, {{{0}, {0, 1}, 2, 2}, {{1, 2}, {2}, 4}});
  // Device 1 holds three micro-batches, counting until the input half.
  SetOrders(graph,
            *ParseOrders("device 0: F0.0 F0.1 I0.0 W0.0 F0.2 I0.1 F0.3 I0.2 I0.3 W0.1 W0.2 W0.3\n"
                         "device 1: F0.0 F0.1 F0.2 I0.0 I0.1 I0.2 F0.3 I0.3 W0.0 W0.1 W0.2 W0.3\n"
                         "device 2: F1.0 B1.0 F1.1 B1.1\n"),
            strategy);
  EXPECT_EQ(strategy.stages[0].schedule, (StageSchedule{6, 1}));
  EXPECT_EQ(strategy.stages[1].schedule, (StageSchedule{4, 1}));
  EXPECT_EQ(CheckOrders(graph, strategy), absl::OkStatus());
}

TEST(OrdersText, RoundTrips) {
  testing::Rng rng(5);
  for (int i = 0; i < 100; ++i) {
    testing::RandomCase random = testing::MakeRandomCase(rng);
    testing::DrawOrders(rng, random.graph, random.strategy);
    const auto parsed = ParseOrders(OrdersToText(random.strategy.orders));
    ASSERT_EQ(parsed.status(), absl::OkStatus());
    EXPECT_EQ(*parsed, random.strategy.orders);
  }
}

TEST(OrdersText, NamesTheLineThatIsWrong) {
  const auto expect = [](const std::string& text, const std::string& message) {
    const absl::Status status = ParseOrders(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  };
  expect("device 0: F0.0\ndevice x: F0.0", "line 2: an order starts with \"device N:\"");
  expect("device 0 F0.0", "line 1: an order starts with \"device N:\"");
  expect("device 0: F0.0 X0.0", "line 1: \"X0.0\" is not a step such as F0.3 or W2.0");
  expect("device 0: F0", "line 1: \"F0\" is not a step");
  expect("device 0: F0.-1", "line 1: \"F0.-1\" is not a step");
}

}  // namespace
}  // namespace stagewright
