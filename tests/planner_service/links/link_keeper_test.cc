#include "planner_service/links/link_keeper.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "planner_service/links/link_prober.h"
#include "tests/planner_service/jobs/recording_store.h"

namespace stagewright {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

// Takes nothing until it may.
class HungStore : public testing::RecordingStore {
 public:
  absl::Status WriteIf(const std::vector<Condition>& conditions,
                       const std::vector<Mutation>& batch) override {
    if (!asked.HasBeenNotified()) asked.Notify();
    may.WaitForNotificationWithTimeout(kPatience);
    ++writes;
    return RecordingStore::WriteIf(conditions, batch);
  }

  absl::Notification asked, may;
  std::atomic<int> writes = 0;
};

LinkTable Table(Nanos latency) {
  LinkTable table;
  table.links[{"a", "b"}] = {latency, 1e9, absl::FromUnixSeconds(1'000'000), ""};
  return table;
}

Nanos Stored(const Store& store) {
  v1::MeasuredLinks links;
  EXPECT_TRUE(links.ParseFromString(store.Read(LinkKeeper::kKey).value()));
  return FromProto(links).links.at({"a", "b"}).latency;
}

TEST(LinkKeeperTest, NobodyWaitsForTheStoreWhichGetsTheNewest) {
  HungStore store;
  {
    LinkKeeper keeper(&store);
    keeper.Keep(Table(1));
    ASSERT_TRUE(store.asked.WaitForNotificationWithTimeout(kPatience));
    for (int latency = 2; latency <= 100; ++latency) keeper.Keep(Table(Nanos(latency)));
    EXPECT_EQ(store.writes, 0);
    store.may.Notify();
  }
  EXPECT_EQ(Stored(store), 100);
  EXPECT_EQ(store.writes, 2);
}

TEST(LinkKeeperTest, WhatTheStoreDoesNotTakeInTimeIsDropped) {
  HungStore store;
  auto keeper = std::make_unique<LinkKeeper>(&store, absl::ZeroDuration());
  keeper->Keep(Table(1));
  ASSERT_TRUE(store.asked.WaitForNotificationWithTimeout(kPatience));
  keeper->Keep(Table(2));
  std::thread later([&] {
    // By then the keeper is about to end, however busy the machine is.
    absl::SleepFor(absl::Seconds(2));
    store.may.Notify();
  });
  keeper.reset();
  later.join();
  EXPECT_EQ(store.writes, 1);
  EXPECT_EQ(Stored(store), 1);
}

// Whoever schedules jobs asks whether links are measured, under the lock of all jobs.
TEST(LinkKeeperTest, AProbeThatEndsOnASlowStoreHoldsUpNoQuestion) {
  HungStore store;
  WorkerRegistry registry;
  LinkProber prober(&store, &registry);
  const absl::Time now = absl::FromUnixSeconds(1'000'000);
  std::atomic<int64_t> asked = 0;
  for (const char* name : {"a", "b"}) {
    v1::Register worker;
    worker.set_worker(name);
    worker.set_host_address(name);
    worker.set_host_cores(1);
    worker.set_threads_per_device(1);
    worker.set_probes_links(true);
    v1::DeviceKind* kind = worker.add_kinds();
    kind->set_name("cpu");
    kind->set_flops_per_second(1e9);
    kind->set_memory_bytes_per_second(1e9);
    v1::Device* device = worker.add_devices();
    device->set_name("cpu0");
    device->set_memory_bytes(1 << 20);
    const auto sink = [&asked](const v1::ConnectResponse& sent) {
      if (sent.has_probe_links()) asked = sent.probe_links().probe();
      return true;
    };
    ASSERT_TRUE(registry.Register(worker, sink, now).ok());
    prober.OnRegistered(worker, now);
  }
  ASSERT_GT(asked, 0);
  EXPECT_TRUE(prober.busy());
  prober.Tick(now + LinkProber::kPatience);  // Nobody answered: that is noted.
  EXPECT_FALSE(prober.busy());
  EXPECT_FALSE(registry.Links().links.at({"a", "b"}).failure.empty());
  ASSERT_TRUE(store.asked.WaitForNotificationWithTimeout(kPatience));
  EXPECT_EQ(store.writes, 0);
  store.may.Notify();
}

}  // namespace
}  // namespace stagewright
