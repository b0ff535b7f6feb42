#include "clients/cli/view/schedule_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/clients/cli/view/branched_plan.h"

namespace stagewright::cli {
namespace {

TEST(ScheduleText, NamesWhatPeopleCallIt) {
  v1::Strategy strategy = BranchedPlan().best().strategy();
  const auto text = [&] { return ScheduleText(strategy, 0); };
  strategy.mutable_stages(0)->set_k(2);
  EXPECT_EQ(text(), "2F2B");
  strategy.mutable_stages(0)->set_in_flight(8);
  strategy.mutable_stages(0)->set_recompute(true);
  EXPECT_EQ(text(), "GPipe, recompute");
  strategy.mutable_stages(0)->set_recompute(false);
  strategy.mutable_stages(2)->set_devices(0, 2);
  EXPECT_EQ(text(), "looped x2, GPipe");
  strategy.set_optimizer_sharding(v1::OPTIMIZER_SHARDING_STATES);
  EXPECT_EQ(text(), "looped x2, GPipe, shared optimizer state");
  strategy.set_optimizer_sharding(v1::OPTIMIZER_SHARDING_GRADIENTS);
  EXPECT_EQ(text(), "looped x2, GPipe, shared optimizer state and gradients");
  strategy.mutable_stages(0)->mutable_devices()->Truncate(1);
  EXPECT_EQ(text(), "looped x2, GPipe") << "one device";
  strategy.clear_optimizer_sharding();
  v1::ComputeStep* step = strategy.add_orders()->add_steps();
  EXPECT_EQ(text(), "looped x2");
  step->set_pass(v1::PASS_BACKWARD_INPUT);
  EXPECT_EQ(text(), "looped x2, split backward");
  EXPECT_EQ(ScheduleText(strategy, 1), "ordered");
  strategy.set_asynchronous(true);
  EXPECT_EQ(text(), "async 1F1B");
  strategy.set_vertical_sync(true);
  EXPECT_EQ(text(), "async 1F1B, vertical sync");
}

}  // namespace
}  // namespace stagewright::cli
