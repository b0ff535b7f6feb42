// Strategies, programs and traces survive the wire unchanged.
#include "common/wire/strategy_proto.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/lowering/lower.h"
#include "common/program/text.h"
#include "tests/support/random.h"
#include "tests/support/random_orders.h"
#include "tests/support/schedule_cases.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

TEST(StrategyProtoTest, RandomStrategiesAndProgramsRoundTrip) {
  testing::Rng rng(11);
  for (int i = 0; i < 200; ++i) {
    testing::RandomCase random = testing::MakeRandomCase(rng);
    random.strategy.splits = {{"top", 4}, {"head", 2}};
    random.strategy.asynchronous = i % 5 == 0;
    random.strategy.vertical_sync = i % 10 == 0;
    random.strategy.bucket_bytes = Bytes(i % 3);
    random.strategy.batch_statistics = static_cast<BatchStatistics>(i % 3);
    random.strategy.optimizer_sharding = static_cast<OptimizerSharding>(i % 3);
    if (i % 3 == 0) testing::DrawOrders(rng, random.graph, random.strategy);
    const Strategy strategy = FromProto(ToProto(random.strategy));
    EXPECT_EQ(ToProto(strategy).SerializeAsString(), ToProto(random.strategy).SerializeAsString());
    EXPECT_EQ(strategy.orders, random.strategy.orders);
    EXPECT_EQ(strategy.splits, random.strategy.splits);
    EXPECT_EQ(strategy.asynchronous, random.strategy.asynchronous);
    EXPECT_EQ(strategy.vertical_sync, random.strategy.vertical_sync);
    EXPECT_EQ(strategy.bucket_bytes, random.strategy.bucket_bytes);
    EXPECT_EQ(strategy.batch_statistics, random.strategy.batch_statistics);
    EXPECT_EQ(strategy.optimizer_sharding, random.strategy.optimizer_sharding);
    if (strategy.asynchronous) continue;
    const testing::FixedCosts costs(100, 10, random.graph);
    // Lowering sees every field of a strategy, and the text form every field of a program.
    const auto before = Lower(random.graph, random.strategy, costs, {});
    const auto after = Lower(random.graph, strategy, costs, {});
    ASSERT_TRUE(before.ok() && after.ok());
    EXPECT_EQ(ToText(*before), ToText(*after));
    const auto program = FromProto(ToProto(*before));
    ASSERT_TRUE(program.ok());
    EXPECT_EQ(ToText(*program), ToText(*before));
  }
}

TEST(StrategyProtoTest, AsynchronousProgramsRoundTrip) {
  testing::Rng rng(12);
  for (int i = 0; i < 50; ++i) {
    testing::RandomCase random = testing::MakeUniformCase(rng);
    if (random.shared_devices) continue;
    random.strategy.asynchronous = true;
    random.strategy.vertical_sync = i % 2 == 0;
    random.strategy.bucket_bytes = Bytes(i % 3);
    const auto lowered =
        Lower(random.graph, random.strategy, testing::FixedCosts(100, 10, random.graph), {});
    ASSERT_TRUE(lowered.ok());
    const auto program = FromProto(ToProto(*lowered));
    ASSERT_TRUE(program.ok());
    EXPECT_EQ(ToText(*program), ToText(*lowered));
  }
}

TEST(StrategyProtoTest, TraceEventsRoundTrip) {
  const TraceEvent event{
      DeviceId(2), {ActionKind::kSendGradient, StageId(3), {4, 8}, 5}, 6, 70, 80};
  const auto back = FromProto(ToProto(event));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, event);
}

TEST(StrategyProtoTest, AnUnknownPassStaysUnknown) {
  v1::Strategy strategy;
  strategy.add_orders()->add_steps()->set_pass(static_cast<v1::Pass>(1000));
  strategy.mutable_orders(0)->add_steps();
  const Strategy back = FromProto(strategy);
  for (const ComputeStep& step : back.orders[0].steps) EXPECT_GT(step.pass, kLastPass);
}

TEST(StrategyProtoTest, AnUnknownKindOfActionIsRefused) {
  v1::Program program;
  program.add_devices()->add_body()->mutable_action()->set_kind(static_cast<v1::ActionKind>(99));
  const auto status = FromProto(program).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("action.kind 99"));
}

}  // namespace
}  // namespace stagewright
