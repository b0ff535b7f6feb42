#include "planner_service/runs/step_collector.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

StepShare Share(int64_t step, double loss, Nanos time = 1) {
  StepShare share;
  share.figures = {.step = step, .loss = loss, .learning_rate = 0.5, .time = time};
  return share;
}

TEST(StepCollector, AStepIsWholeWhenAllDevicesHaveReportedIt) {
  StepCollector steps(2, 8);
  EXPECT_FALSE(steps.Add(0, Share(1, 0.25, 10)).has_value());
  EXPECT_FALSE(steps.Add(0, Share(1, 0.25, 10)).has_value());  // Said twice.
  EXPECT_FALSE(steps.Add(0, Share(2, 0.125)).has_value());
  StepShare last = Share(1, 0.5, 30);
  last.figures.skipped = true;
  last.loss_scale = 8;
  last.evaluation = {.loss = 3, .predicted = 4, .correct = 1};
  const auto whole = steps.Add(1, last);
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->figures.step, 1);
  EXPECT_EQ(whole->figures.loss, 0.75);
  EXPECT_EQ(whole->figures.learning_rate, 0.5);
  EXPECT_EQ(whole->figures.time, 30);
  EXPECT_TRUE(whole->figures.skipped);
  EXPECT_EQ(whole->loss_scale, 8);
  ASSERT_TRUE(whole->evaluation.has_value());
  EXPECT_EQ(whole->evaluation->accuracy(), 0.25);
}

TEST(StepCollector, WaitsForABoundedNumberOfSteps) {
  StepCollector steps(2, 3);
  EXPECT_EQ(steps.stride(), 1);
  for (int64_t step = 1; step <= 5; ++step) EXPECT_FALSE(steps.Add(0, Share(step, 1)).has_value());
  EXPECT_EQ(steps.stride(), 2);
  for (int64_t step = 1; step <= 5; ++step)
    EXPECT_EQ(steps.Add(1, Share(step, 1)).has_value(), step % 2 == 1) << step;
}

TEST(EvaluationFigures, NothingPredictedIsNoAccuracy) {
  EXPECT_FALSE(EvaluationFigures{.loss = 1}.accuracy().has_value());
}

}  // namespace
}  // namespace stagewright
