#include "common/training/checkpoint_policy.h"

#include <gtest/gtest.h>

#include <vector>

namespace stagewright {
namespace {

std::string Message(const CheckpointPolicy& policy, bool asynchronous = false) {
  return std::string(Check(policy, asynchronous).message());
}

TEST(CheckpointPolicy, IsDueByItsSteps) {
  const CheckpointPolicy policy{.every_steps = 3};
  EXPECT_FALSE(policy.IsDue(2));
  EXPECT_TRUE(policy.IsDue(3));
  EXPECT_FALSE(policy.IsDue(4));
  EXPECT_TRUE(policy.IsDue(6));
  EXPECT_FALSE(CheckpointPolicy{.every = kSecond}.IsDue(3));
}

TEST(CheckpointPolicy, OfThreeThatFollowEachOtherTheLastIsAtMostAnIntervalAfterTheFirst) {
  for (int64_t every = 2; every < 9; ++every) {
    const CheckpointPolicy policy{.every_steps = every, .halfway = true};
    std::vector<int64_t> due = {0};
    for (int64_t steps = 1; steps < 50; ++steps) {
      if (policy.IsDue(steps)) due.push_back(steps);
      EXPECT_TRUE(policy.IsDue(steps) || steps % every != 0);
      EXPECT_EQ(policy.IsHalfway(steps), policy.IsDue(steps) && steps % every != 0);
    }
    for (size_t i = 2; i < due.size(); ++i) EXPECT_EQ(due[i] - due[i - 2], every);
  }
  const CheckpointPolicy each{.every_steps = 1, .halfway = true};
  EXPECT_TRUE(each.IsDue(1) && each.IsDue(2) && !each.IsHalfway(1) && !each.IsHalfway(2));
}

TEST(CheckpointPolicy, NamesTheField) {
  EXPECT_EQ(Message({.every_steps = 5, .every = kSecond, .keep = 1}), "");
  EXPECT_EQ(Message({.every_steps = -1}), "checkpoints.every_steps must not be negative, is -1");
  EXPECT_EQ(Message({.every = -2}), "checkpoints.every_ns must not be negative, is -2");
  EXPECT_EQ(Message({.every_steps = 5, .keep = 0}), "checkpoints.keep must be positive, is 0");
  EXPECT_EQ(Message({}), "checkpoints needs every_steps or every_ns");
  EXPECT_EQ(
      Message({.every_steps = 5, .every = kSecond}, /*asynchronous=*/true),
      "checkpoints.every_ns is not possible with an asynchronous plan, which is flushed for a "
      "checkpoint: use every_steps, so that losses do not depend on the clock");
  EXPECT_EQ(Message({.every_steps = 5}, /*asynchronous=*/true), "");
}

}  // namespace
}  // namespace stagewright
