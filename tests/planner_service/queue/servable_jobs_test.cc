#include "planner_service/queue/servable_jobs.h"

#include <gtest/gtest.h>

#include <utility>

namespace stagewright {
namespace {

const Account kAlice = Account::Of("alice", "");
const Account kBob = Account::Of("bob", "");

QueueState OneWaits(WaitingJob job) {
  QueueState queue;
  queue.devices = {.free = 1, .ending = 1, .cordoned = 8};
  queue.holding.push_back({.number = 1, .account = kAlice, .devices = 3, .returns = 2});
  queue.waiting.push_back(std::move(job));
  return queue;
}

TEST(ServableJobsTest, AreThoseForWhomEnoughDevicesAreConnected) {
  EXPECT_EQ(ServableJobs(OneWaits({.number = 2, .account = kBob, .least = 4}), {}, kAlice), 1);
  EXPECT_EQ(ServableJobs(OneWaits({.number = 2, .account = kBob, .least = 5}), {}, kAlice), 0);
  EXPECT_EQ(
      ServableJobs(OneWaits({.number = 2, .account = kBob, .least = 5, .awaits_workers = true}), {},
                   kAlice),
      1);
  EXPECT_EQ(ServableJobs({}, {}, kAlice), 0);
}

TEST(ServableJobsTest, AreThoseThatTheirOwnersMayHave) {
  const QueueState queue = OneWaits({.number = 2, .account = kBob, .least = 4});
  EXPECT_EQ(ServableJobs(queue, {.quotas = {{kBob, 3}}}, kAlice), 0);
  EXPECT_EQ(ServableJobs(queue, {.quotas = {{kBob, 4}}, .other_owners = 1}, kAlice), 1);
}

TEST(ServableJobsTest, ThatWaitForOtherJobsOfTheirAccountToEndKeepBackThatAccountAlone) {
  const QueueState queue = OneWaits({.number = 2, .account = kAlice, .least = 2});
  for (const auto& [quota, for_others] : {std::pair(4, 0), std::pair(5, 1)}) {
    const QueueRules rules = {.quotas = {{kAlice, quota}}};
    EXPECT_EQ(ServableJobs(queue, rules, kAlice), 1) << quota;
    EXPECT_EQ(ServableJobs(queue, rules, kBob), for_others) << quota;
  }
}

}  // namespace
}  // namespace stagewright
