#include "planner_service/planner/search_context.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

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

TEST(SearchContextTest, WorkOfPartsCountsForTheWhole) {
  const SearchContext whole;
  EXPECT_EQ(whole.WorkLeft(), SearchContext::kAnyWork);
  const SearchContext part(whole, kMillisecond);
  const SearchContext inner(part, SearchContext::kAnyEffort);
  EXPECT_FALSE(inner.Expired());
  const Nanos left = inner.WorkLeft();
  EXPECT_LT(left, kMillisecond);  // A poll is work, too.
  EXPECT_GT(left, 0);
  inner.Spend(left);
  EXPECT_EQ(part.WorkLeft(), 0);
  EXPECT_EQ(whole.work(), part.work());
  EXPECT_TRUE(inner.Expired());
  EXPECT_TRUE(part.Expired());
  EXPECT_FALSE(inner.Stopped());  // No clock had a say in it.
  EXPECT_FALSE(part.Stopped());
  EXPECT_FALSE(whole.Expired());
}

TEST(SearchContextTest, AnOutersEffortIsNoClock) {
  const SearchContext whole;
  const SearchContext part(whole, 2);
  const SearchContext inner(part, SearchContext::kAnyEffort);
  while (!inner.Expired()) {
  }
  EXPECT_FALSE(inner.Stopped());
}

TEST(SearchContextTest, JudgingIsMoreWorkOnMoreDevices) {
  Strategy strategy;
  strategy.mini_batch = 8;
  strategy.stages.resize(1);
  strategy.stages[0].micro_batch = 4;
  strategy.stages[0].nodes.resize(100);
  strategy.stages[0].devices = {DeviceId(0)};
  const Nanos work = WorkOfJudging(strategy);
  EXPECT_GT(work, 0);
  strategy.stages[0].devices = {DeviceId(0), DeviceId(1)};
  EXPECT_GT(WorkOfJudging(strategy), work);
  EXPECT_LT(WorkOfJudging(strategy), 2 * work);  // The nodes of a stage are read once.
}

TEST(SearchContextTest, APollCountsTheWorkSinceTheLastOne) {
  const SearchContext whole;
  const SearchContext part(whole, kMillisecond);
  EXPECT_FALSE(part.Expired(kMillisecond - 1));
  EXPECT_EQ(part.WorkLeft(), 1);
  EXPECT_FALSE(part.Expired(/*since=*/0));
  EXPECT_EQ(part.WorkLeft(), 1);
  EXPECT_TRUE(part.Expired(2));
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

TEST(SearchContextTest, APartMayHaveHalfOfTheTime) {
  using Clock = SearchContext::Clock;
  SearchContext endless;
  EXPECT_EQ(endless.HalfTime(), Clock::time_point::max());
  const SearchContext hour(Clock::now() + std::chrono::hours(1));
  EXPECT_GT(hour.HalfTime(), Clock::now() + std::chrono::minutes(20));
  EXPECT_LT(hour.HalfTime(), Clock::now() + std::chrono::minutes(40));
  const SearchContext over(hour, Clock::now());
  EXPECT_TRUE(over.Expired());
  EXPECT_FALSE(hour.Expired());
  const SearchContext part(endless, endless.HalfTime());
  EXPECT_FALSE(part.Expired());
  endless.Cancel();
  EXPECT_TRUE(part.Expired());
}

TEST(SearchContextTest, JudgingCostsAsMuchAsTheProgramIsLong) {
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
