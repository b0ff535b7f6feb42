#include "planner_service/simulator/link_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace stagewright {
namespace {

using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr double kGigabyte = 1e9;  // A byte per nanosecond.

std::map<int32_t, Nanos> Finishes(std::span<const LinkShares::Change> changes) {
  std::map<int32_t, Nanos> finishes;
  for (const LinkShares::Change& change : changes) finishes[change.flow] = change.finish;
  return finishes;
}

TEST(LinkSharesTest, AloneAFlowTakesItsSlowestLink) {
  LinkShares shares({kGigabyte, kGigabyte / 2}, 1);
  const std::vector<int32_t> links = {0, 1};
  shares.Begin(0, links, 1000);
  EXPECT_THAT(Finishes(shares.Settle(50)), UnorderedElementsAre(Pair(0, Nanos(2050))));
}

TEST(LinkSharesTest, TwoFlowsHalveALinkAndGetItBack) {
  LinkShares shares({kGigabyte}, 2);
  const std::vector<int32_t> link = {0};
  shares.Begin(0, link, 1000);
  EXPECT_THAT(Finishes(shares.Settle(0)), UnorderedElementsAre(Pair(0, Nanos(1000))));
  // At 400, 600 bytes are left; from then on it moves at half the rate.
  shares.Begin(1, link, 300);
  EXPECT_THAT(Finishes(shares.Settle(400)),
              UnorderedElementsAre(Pair(0, Nanos(1600)), Pair(1, Nanos(1000))));
  // At 1000 the short one is done and 300 bytes of the long one are left.
  shares.End(1);
  EXPECT_THAT(Finishes(shares.Settle(1000)), UnorderedElementsAre(Pair(0, Nanos(1300))));
}

TEST(LinkSharesTest, AFlowOnAnotherLinkIsLeftAlone) {
  LinkShares shares({kGigabyte, kGigabyte}, 3);
  const std::vector<int32_t> first = {0}, second = {1};
  shares.Begin(0, first, 1000);
  shares.Begin(1, second, 1000);
  shares.Settle(0);
  const uint32_t before = shares.version(0);
  shares.Begin(2, second, 1000);
  EXPECT_THAT(Finishes(shares.Settle(10)),
              UnorderedElementsAre(Pair(1, Nanos(1990)), Pair(2, Nanos(2010))));
  EXPECT_EQ(shares.version(0), before);
}

TEST(LinkSharesTest, TheMostCrowdedLinkDecides) {
  LinkShares shares({kGigabyte, 10 * kGigabyte}, 4);
  const std::vector<int32_t> narrow = {0}, wide = {1}, both = {0, 1};
  shares.Begin(0, both, 1000);
  shares.Begin(1, narrow, 1000);
  shares.Begin(2, wide, 1000);
  EXPECT_THAT(
      Finishes(shares.Settle(0)),
      UnorderedElementsAre(Pair(0, Nanos(2000)), Pair(1, Nanos(2000)), Pair(2, Nanos(200))));
}

TEST(LinkSharesTest, ExchangeAtOneMomentChangesNobodyElse) {
  LinkShares shares({kGigabyte}, 3);
  const std::vector<int32_t> link = {0};
  shares.Begin(0, link, 1000);
  shares.Begin(1, link, 100);
  shares.Settle(0);
  shares.End(1);
  shares.Begin(2, link, 100);
  EXPECT_THAT(Finishes(shares.Settle(200)), UnorderedElementsAre(Pair(2, Nanos(400))));
}

// A link is work-conserving: whatever comes and goes, it is never idle while a flow waits, so the
// last flow ends when all bytes have passed.
TEST(LinkSharesTest, OneLinkPassesAllBytesInTheirTime) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 50; ++round) {
    const int32_t flows = 2 + static_cast<int32_t>(random() % 20);
    LinkShares shares({kGigabyte}, flows);
    const std::vector<int32_t> link = {0};
    std::map<int32_t, Nanos> finish;
    Bytes total = 0;
    int32_t begun = 0;
    Nanos now = 0;
    Nanos last = 0;
    while (begun < flows || !finish.empty()) {
      // The next flow begins before the link could fall idle.
      if (begun < flows && (finish.empty() || random() % 2 == 0)) {
        const Bytes bytes = 1 + static_cast<Bytes>(random() % 5000);
        total += bytes;
        shares.Begin(begun++, link, bytes);
      } else {
        auto next = finish.begin();
        for (auto it = finish.begin(); it != finish.end(); ++it) {
          if (it->second < next->second) next = it;
        }
        now = next->second;
        shares.End(next->first);
        finish.erase(next);
        last = now;
        if (finish.empty() && begun < flows) {
          const Bytes bytes = 1 + static_cast<Bytes>(random() % 5000);
          total += bytes;
          shares.Begin(begun++, link, bytes);
        }
      }
      for (const LinkShares::Change& change : shares.Settle(now)) {
        finish[change.flow] = change.finish;
      }
    }
    EXPECT_NEAR(static_cast<double>(last), static_cast<double>(total), flows);
  }
}

}  // namespace
}  // namespace stagewright
