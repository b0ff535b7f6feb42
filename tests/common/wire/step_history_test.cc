#include "common/wire/step_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::JobStep Step(int64_t number) {
  v1::JobStep step;
  step.set_step(number);
  step.set_loss(1.0 / static_cast<double>(number));
  return step;
}

std::vector<int64_t> Numbers(const v1::ListJobStepsResponse& proto) {
  std::vector<int64_t> numbers;
  for (const v1::JobStep& step : proto.steps()) {
    EXPECT_EQ(step.loss(), 1.0 / static_cast<double>(step.step()));
    numbers.push_back(step.step());
  }
  return numbers;
}

StepHistory UpTo(int64_t last, size_t bound) {
  StepHistory history(bound);
  for (int64_t step = 1; step <= last; ++step) history.Add(Step(step));
  return history;
}

TEST(StepHistoryTest, KeepsEveryStepUpToTheBound) {
  EXPECT_THAT(Numbers(StepHistory().ToProto()), IsEmpty());
  EXPECT_THAT(Numbers(UpTo(4, 4).ToProto()), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(UpTo(StepHistory::kBound, StepHistory::kBound).ToProto().steps_size(), 4096);
}

TEST(StepHistoryTest, ThinsEvenlyAndKeepsFirstAndLast) {
  EXPECT_THAT(Numbers(UpTo(5, 4).ToProto()), ElementsAre(1, 3, 5));
  EXPECT_THAT(Numbers(UpTo(6, 4).ToProto()), ElementsAre(1, 3, 5, 6));
  EXPECT_THAT(Numbers(UpTo(8, 4).ToProto()), ElementsAre(1, 5, 8));
  for (int64_t last : {100, 1000, 12345}) {
    const StepHistory history = UpTo(last, 64);
    const std::vector<int64_t> kept = Numbers(history.ToProto());
    EXPECT_LE(kept.size(), 64u);
    EXPECT_GE(kept.size(), 32u);
    EXPECT_EQ(kept.front(), 1);
    EXPECT_EQ(kept.back(), last);
    for (size_t i = 1; i + 1 < kept.size(); ++i) EXPECT_EQ(kept[i] - kept[i - 1], history.stride());
  }
}

TEST(StepHistoryTest, WhatIsKeptDoesNotDependOnTheOrderOfArrival) {
  std::mt19937_64 random(1);
  std::vector<int64_t> order;
  for (int64_t step = 1; step <= 50; ++step) order.push_back(step);
  for (int round = 0; round < 20; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    StepHistory dense;  // Nothing is lost where nothing is thinned.
    for (int64_t step : order) dense.Add(Step(step));
    EXPECT_EQ(dense.ToProto().steps_size(), 50);
    StepHistory thinned(8);
    for (int64_t step : order) thinned.Add(Step(step));
    EXPECT_LE(thinned.ToProto().steps_size(), 8);
    EXPECT_EQ(Numbers(thinned.ToProto()).front(), 1);
    EXPECT_EQ(Numbers(thinned.ToProto()).back(), 50);
  }
}

TEST(StepHistoryTest, AJobThatResumedKeepsItsFirstStepToo) {
  StepHistory history(4);
  for (int64_t step = 102; step <= 112; ++step) history.Add(Step(step));
  EXPECT_THAT(Numbers(history.ToProto()), ElementsAre(102, 105, 109, 112));
}

TEST(StepHistoryTest, TrainingThatWentBackReplacesWhatCameAfter) {
  StepHistory history = UpTo(6, 8);
  history.DropAfter(4);
  EXPECT_THAT(Numbers(history.ToProto()), ElementsAre(1, 2, 3, 4));
  v1::JobStep again = Step(4);
  again.set_loss(7);
  history.Add(again);
  EXPECT_EQ(history.ToProto(3).steps(0).loss(), 7);
}

TEST(StepHistoryTest, TakesOverTheStrideOfOthers) {
  StepHistory history = UpTo(8, 64);
  history.Coarsen(4);
  EXPECT_THAT(Numbers(history.ToProto()), ElementsAre(1, 5, 8));
  history.Coarsen(2);
  EXPECT_EQ(history.stride(), 4);
  StepHistory empty;
  empty.Coarsen(2);
  EXPECT_EQ(empty.stride(), 2);
}

TEST(StepHistoryTest, GoesOnAfterTheWire) {
  StepHistory history = StepHistory::FromProto(UpTo(10000, StepHistory::kBound).ToProto());
  EXPECT_EQ(history.stride(), 4);
  EXPECT_FALSE(history.Has(10000 - 1));
  EXPECT_TRUE(history.Has(9997));
  history.Add(Step(10001));
  EXPECT_THAT(Numbers(history.ToProto(9990)), ElementsAre(9993, 9997, 10001));
}

}  // namespace
}  // namespace stagewright
