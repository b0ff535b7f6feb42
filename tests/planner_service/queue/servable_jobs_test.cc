#include "planner_service/queue/servable_jobs.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

const Account kBob = Account::Of("bob", "");

QueueState OneWaits(WaitingJob job) {
  QueueState queue;
  queue.devices = {.free = 1, .ending = 1, .cordoned = 8};
  queue.holding.push_back({.number = 1, .account = {.owner = "alice"}, .devices = 3, .returns = 2});
  queue.waiting.push_back(std::move(job));
  return queue;
}

TEST(ServableJobsTest, AreThoseForWhomEnoughDevicesAreConnected) {
  EXPECT_EQ(ServableJobs(OneWaits({.number = 2, .account = kBob, .least = 4}), {}), 1);
  EXPECT_EQ(ServableJobs(OneWaits({.number = 2, .account = kBob, .least = 5}), {}), 0);
  EXPECT_EQ(ServableJobs(
                OneWaits({.number = 2, .account = kBob, .least = 5, .awaits_workers = true}), {}),
            1);
  EXPECT_EQ(ServableJobs({}, {}), 0);
}

TEST(ServableJobsTest, AreThoseThatTheirOwnersMayHave) {
  const QueueState queue = OneWaits({.number = 2, .account = kBob, .least = 4});
  EXPECT_EQ(ServableJobs(queue, {.quotas = {{kBob, 3}}}), 0);
  EXPECT_EQ(ServableJobs(queue, {.quotas = {{kBob, 4}}, .other_owners = 1}), 1);
}

}  // namespace
}  // namespace stagewright
