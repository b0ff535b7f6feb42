#include "planner_service/planner/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(PlannerTest, AStoppedSearchIsALimitAndKeepsWhatItFound) {
  Outcome outcome;
  outcome.strategy = Strategy();
  SayStopped(outcome);
  EXPECT_EQ(outcome.termination, Termination::kLimit);
  EXPECT_EQ(outcome.reason, "the search was stopped by its deadline or cancelled");
  EXPECT_TRUE(outcome.strategy.has_value());
  SayStopped(outcome, "12 candidates");
  EXPECT_THAT(outcome.reason, HasSubstr("cancelled after 12 candidates"));
}

}  // namespace
}  // namespace stagewright
