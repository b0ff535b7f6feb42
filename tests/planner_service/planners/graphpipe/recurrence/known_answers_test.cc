#include "planner_service/planners/graphpipe/recurrence/known_answers.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(KnownAnswersTest, ARefutedQuestionRefutesThoseThatAllowLess) {
  KnownAnswers answers;
  answers.Refute(10, {.devices = 4, .in_flight = 8});
  EXPECT_TRUE(answers.IsRefuted(10, {4, 8}));
  EXPECT_TRUE(answers.IsRefuted(9, {3, 7}));
  EXPECT_FALSE(answers.IsRefuted(10.5, {4, 8}));
  EXPECT_FALSE(answers.IsRefuted(10, {5, 8}));
  EXPECT_FALSE(answers.IsRefuted(10, {4, 9}));
}

TEST(KnownAnswersTest, WhatAnEasierSearchDidNotFindIsRefutedTransitively) {
  KnownAnswers easiest;
  KnownAnswers easier;
  KnownAnswers answers;
  easier.LearnFrom(easiest);
  answers.LearnFrom(easier);
  EXPECT_FALSE(answers.IsRefuted(1, {1, 1}));
  easiest.Refute(2, {1, 1});
  EXPECT_TRUE(answers.IsRefuted(1, {1, 1}));
  EXPECT_FALSE(easiest.IsRefuted(3, {1, 1}));
}

TEST(KnownAnswersTest, AnEasierSearchAnswersTheSameQuestionOnly) {
  KnownAnswers easier;
  KnownAnswers answers;
  answers.LearnFrom(easier);
  easier.Keep(10, {4, 8}, /*replicas=*/true, {.stages = {}, .devices = 3});
  ASSERT_TRUE(answers.FromEasier(10, {4, 8}, true).has_value());
  EXPECT_EQ(answers.FromEasier(10, {4, 8}, true)->devices, 3);
  EXPECT_FALSE(answers.FromEasier(10, {4, 8}, false).has_value());
  EXPECT_FALSE(answers.FromEasier(9, {4, 8}, true).has_value());
  EXPECT_FALSE(answers.FromEasier(10, {4, 7}, true).has_value());
  EXPECT_FALSE(answers.FromEasier(10, {3, 8}, true).has_value());
  EXPECT_FALSE(easier.FromEasier(10, {4, 8}, true).has_value());  // Its own answers it finds again.
}

}  // namespace
}  // namespace stagewright
