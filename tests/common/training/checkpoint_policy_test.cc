#include "common/training/checkpoint_policy.h"

#include <gtest/gtest.h>

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
