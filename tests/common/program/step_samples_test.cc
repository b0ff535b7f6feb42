#include "common/program/step_samples.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(StepSamples, SamplesFromTheMiniBatchOnAreOfTheNextStep) {
  EXPECT_EQ(SamplesInStep(5, {0, 4}, 8), (StepSamples{5, {0, 4}}));
  EXPECT_EQ(SamplesInStep(5, {4, 8}, 8), (StepSamples{5, {4, 8}}));
  EXPECT_EQ(SamplesInStep(5, {8, 12}, 8), (StepSamples{6, {0, 4}}));
}

TEST(StepSamples, OrderIsThatOfTheSteps) {
  EXPECT_LT((StepSamples{1, {4, 8}}), (StepSamples{2, {0, 4}}));
  EXPECT_LT((StepSamples{1, {0, 4}}), (StepSamples{1, {4, 8}}));
}

}  // namespace
}  // namespace stagewright
