#include "planner_service/queue/reservation.h"

#include <gtest/gtest.h>

#include "tests/planner_service/queue/queue_cases.h"

namespace stagewright {
namespace {

using testing::Waits;

constexpr absl::Time kNow = absl::UnixEpoch();

Pool PoolOf(int64_t available, const std::vector<Return>& held) {
  Pool pool;
  pool.available = available;
  for (const Return& one : held) Hold(one, pool);
  return pool;
}

TEST(SubsetSumsTest, HasTheSumsOfAnyChoice) {
  SubsetSums sums;
  sums.Add(2);
  sums.Add(5);
  sums.Add(0);
  std::vector<int64_t> all;
  for (int64_t sum = 0; sum <= 9; ++sum) {
    if (sums.Has(sum)) all.push_back(sum);
  }
  EXPECT_EQ(all, (std::vector<int64_t>{0, 2, 5, 7}));
}

TEST(ReserveTest, WhatIsThereIsEnough) {
  Pool pool = PoolOf(5, {{2, {}}});
  const Reservation first = Reserve(Waits(1, 3), kNow, pool);
  EXPECT_TRUE(first.soon);
  EXPECT_EQ(first.extra, 2);
  const Reservation second = Reserve(Waits(2, 3), kNow, pool);
  EXPECT_FALSE(second.soon);
  EXPECT_EQ(second.extra, 1);  // When the two devices are back.
}

TEST(ReserveTest, LeavesOverWhatItDoesInAnyOrderOfEnds) {
  Pool one = PoolOf(2, {{4, {}}});
  EXPECT_EQ(Reserve(Waits(1, 4), kNow, one).extra, 2);
  Pool either = PoolOf(2, {{4, {}}, {2, {}}});
  EXPECT_EQ(Reserve(Waits(1, 4), kNow, either).extra, 0);
}

TEST(ReserveTest, CountsThatTheOneBeforeMayEndEarly) {
  // Job 1 starts with the first three, and ends before the six come: job 2 needs all four then.
  Pool pool = PoolOf(1, {{3, {}}, {6, {}}});
  EXPECT_GT(Reserve(Waits(1, 2), kNow, pool).extra, 0);
  EXPECT_EQ(Reserve(Waits(2, 4), kNow, pool).extra, 0);
}

TEST(ReserveTest, StartsWhenEnoughHasComeBack) {
  const auto at = [](int64_t seconds) { return kNow + absl::Seconds(seconds); };
  Pool pool = PoolOf(1, {{2, at(30)}, {1, at(10)}, {1, at(20)}});
  EXPECT_EQ(Reserve(Waits(1, 3), kNow, pool).start, at(20));
  Pool unknown = PoolOf(1, {{2, at(30)}, {2, {}}});
  EXPECT_EQ(Reserve(Waits(1, 3), kNow, unknown).start, kNow);
}

// What Reserve says without a limit to the sums, from all choices of reservations and returns.
int64_t ExtraOf(int64_t needed, const Pool& pool, const std::vector<int64_t>& reserved) {
  SubsetSums before;
  for (const int64_t one : reserved) before.Add(one);
  std::optional<int64_t> least;
  for (int64_t sum = 0; sum <= before.largest(); ++sum) {
    if (!before.Has(sum)) continue;
    for (int64_t back = 0; back <= pool.returns.largest(); ++back) {
      const int64_t over = pool.available + back - needed - sum;
      if (pool.returns.Has(back) && over >= 0) least = std::min(least.value_or(over), over);
    }
  }
  return least.value_or(0);
}

TEST(ReserveTest, SumsThatThePoolHasNotMakeNoDifferenceAndNoWork) {
  testing::Rng rng(1);
  for (int i = 0; i < 5'000; ++i) {
    std::vector<Return> held;
    for (int64_t k = testing::Uniform(rng, 0, 4); k > 0; --k)
      held.push_back({testing::Uniform(rng, 1, 5), {}});
    Pool pool = PoolOf(testing::Uniform(rng, -2, 5), held);
    const int64_t units = pool.available + pool.returns.largest();
    std::vector<int64_t> reserved;
    int64_t all = 0;
    for (int64_t job = 1; job <= 8 && units > 0; ++job) {
      const int64_t needed = testing::Uniform(rng, 1, units);
      const Reservation made = Reserve(Waits(job, needed), kNow, pool);
      ASSERT_EQ(made.extra, ExtraOf(needed, pool, reserved)) << "pool " << i << ", job " << job;
      ASSERT_EQ(made.soon, needed + all <= pool.available);
      ASSERT_LE(pool.reserved.largest(), units);
      reserved.push_back(needed);
      all += needed;
    }
    ASSERT_EQ(pool.all_reserved, all);
  }
}

TEST(LeftForTest, AsksOnlyThoseWhoCouldDelayIt) {
  Reservation reservation;
  reservation.priority = 3;
  reservation.start = kNow + absl::Seconds(10);
  reservation.extra = 1;
  WaitingJob job = Waits(1, 2);
  EXPECT_EQ(LeftFor(job, reservation, kNow), 1);
  job.preemptible = true;
  EXPECT_EQ(LeftFor(job, reservation, kNow), std::nullopt);
  reservation.soon = true;
  EXPECT_EQ(LeftFor(job, reservation, kNow), 1);
  reservation.soon = false;
  job.priority = 3;
  EXPECT_EQ(LeftFor(job, reservation, kNow), 1);
  job.takes = absl::Seconds(10);
  EXPECT_EQ(LeftFor(job, reservation, kNow), std::nullopt);
  job.takes = absl::Seconds(11);
  EXPECT_EQ(LeftFor(job, reservation, kNow), 1);
  reservation.account = Account::Of("bob", "");
  EXPECT_EQ(LeftFor(job, reservation, kNow), std::nullopt);
}

}  // namespace
}  // namespace stagewright
