#include "planner_service/planner/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace stagewright {
namespace {

using ::testing::HasSubstr;

TEST(PlannerTest, OptionsThatAPlannerCannotKeepToAreRefusedByName) {
  struct Case {
    PlanOptions options;
    PlannerAbilities without;
    const char* option;
  };
  const std::vector<Case> cases = {
      {{.asynchronous = true}, {}, "options.asynchronous"},
      {{.recompute = RecomputePolicy::kAlways}, {.recompute_always = false}, "options.recompute"},
      {{.num_stages = 2}, {.several_stages = false}, "options.num_stages"},
      {{.allow_replicas = false}, {.without_replicas = false}, "options.allow_replicas"},
  };
  for (const Case& c : cases) {
    const absl::Status refused = CheckAbilities(c.options, "p", c.without);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("planner 'p'"));
    EXPECT_THAT(std::string(refused.message()), HasSubstr(c.option));
    EXPECT_TRUE(CheckAbilities(c.options, "p", {.asynchronous = true}).ok());
    EXPECT_TRUE(CheckAbilities({}, "p", c.without).ok());
    EXPECT_TRUE(CheckAbilities(c.options, kManualPlanner, c.without).ok());
  }
}

TEST(SearchContextTest, EffortEndsAPartAndNotTheWhole) {
  const SearchContext whole;
  const SearchContext part(whole, 5);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(part.Expired());
  EXPECT_TRUE(part.Expired());
  EXPECT_FALSE(part.Stopped());  // No clock had a say in it.
  EXPECT_FALSE(whole.Expired());
  const SearchContext charged(whole, 100);
  charged.Charge(100);
  EXPECT_TRUE(charged.Expired());
}

TEST(SearchContextTest, DeadlineAndCancellationReachParts) {
  SearchContext whole;
  const SearchContext part(whole, SearchContext::kAnyEffort);
  EXPECT_FALSE(part.Expired());
  whole.Cancel();
  EXPECT_FALSE(part.Stopped());  // Nobody has asked yet.
  EXPECT_TRUE(part.Expired());
  EXPECT_TRUE(part.Stopped());
  EXPECT_TRUE(whole.Stopped());
  const SearchContext late(SearchContext::Clock::now());
  EXPECT_TRUE(late.Expired());
  EXPECT_TRUE(late.Stopped());
}

TEST(PlannerTest, JudgingCostsAsMuchAsTheProgramIsLong) {
  Strategy strategy;
  strategy.mini_batch = 8;
  strategy.stages.resize(2);
  for (Stage& stage : strategy.stages) {
    stage.micro_batch = 4;
    stage.devices = {DeviceId(0), DeviceId(1)};
  }
  const int64_t effort = EffortOfJudging(strategy);
  EXPECT_GT(effort, 0);
  for (Stage& stage : strategy.stages) stage.micro_batch = 2;
  EXPECT_EQ(EffortOfJudging(strategy), 2 * effort);
}

}  // namespace
}  // namespace stagewright
