#include "planner_service/jobs/job_cluster.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

// A CPU device of so many flops per second, on its own worker.
RegisteredDevice DeviceAt(const std::string& host, const std::string& worker, double flops) {
  RegisteredDevice registered;
  registered.worker = worker;
  registered.device.set_name("cpu0");
  registered.device.set_memory_bytes(1000);
  registered.kind.set_name("cpu");
  registered.kind.set_flops_per_second(flops);
  registered.kind.set_memory_bytes_per_second(1e9);
  registered.host_address = host;
  return registered;
}

TEST(JobCluster, DevicesOfOneHostMeetInItsMemory) {
  const Cluster cluster =
      JobCluster({DeviceAt("a", "w0", 1e9), DeviceAt("a", "w1", 1e9), DeviceAt("b", "w2", 1e9)}, {})
          .value();
  ASSERT_EQ(cluster.size(), 3);
  EXPECT_EQ(cluster.device(DeviceId(1)).name, "w1/cpu0");
  EXPECT_EQ(cluster.device(DeviceId(1)).memory, 1000);
  EXPECT_EQ(cluster.device(DeviceId(0)).node, cluster.device(DeviceId(1)).node);
  EXPECT_NE(cluster.device(DeviceId(0)).node, cluster.device(DeviceId(2)).node);
  EXPECT_EQ(cluster.route(DeviceId(0), DeviceId(1)).bytes_per_second, 5e9);
  EXPECT_EQ(cluster.route(DeviceId(0), DeviceId(2)).bytes_per_second, 1.25e9);
  // The wire and both uplinks.
  EXPECT_EQ(cluster.route(DeviceId(0), DeviceId(2)).links.size(), 3u);
  EXPECT_EQ(cluster.route(DeviceId(0), DeviceId(2)).latency, 130 * kMicrosecond);
}

TEST(JobCluster, DevicesOfOneNameAndSpeedShareAKind) {
  const Cluster cluster =
      JobCluster({DeviceAt("a", "w0", 1.4e9), DeviceAt("b", "w1", 0.5e9), DeviceAt("c", "w2", 1e9)},
                 {})
          .value();
  ASSERT_EQ(cluster.kinds().size(), 2u);
  EXPECT_EQ(cluster.device(DeviceId(0)).kind, cluster.device(DeviceId(2)).kind);
  EXPECT_EQ(cluster.kinds()[0].name, "cpu");
  EXPECT_EQ(cluster.kinds()[1].name, "cpu-2");
  EXPECT_EQ(cluster.kinds()[1].flops_per_second, 0.5e9);
}

TEST(JobCluster, ThreadsThatOutnumberCoresShareThem) {
  std::vector<RegisteredDevice> devices = {DeviceAt("a", "w0", 1e9), DeviceAt("a", "w1", 1e9)};
  for (RegisteredDevice& device : devices) {
    device.threads = 3;
    device.host_cores = 3;
  }
  const Cluster cluster = JobCluster(devices, {}).value();
  ASSERT_EQ(cluster.kinds().size(), 1u);
  EXPECT_DOUBLE_EQ(cluster.kinds()[0].flops_per_second, 0.5e9);
}

TEST(JobCluster, AllThreadsOfAMachineShareItsCores) {
  std::vector<RegisteredDevice> devices = {DeviceAt("a", "w0", 1e9), DeviceAt("a", "w1", 1e9)};
  devices[0].threads = 8;
  devices[1].threads = 1;
  for (RegisteredDevice& device : devices) device.host_cores = 8;
  const Cluster cluster = JobCluster(devices, {}).value();
  for (const DeviceKind& kind : cluster.kinds())
    EXPECT_DOUBLE_EQ(kind.flops_per_second, 1e9 * 8 / 9);
}

TEST(JobCluster, RatesAreThoseOfTheMachineWhenAllItsDevicesWork) {
  std::vector<RegisteredDevice> devices = {DeviceAt("a", "w0", 1e9), DeviceAt("a", "w1", 1e9)};
  for (RegisteredDevice& device : devices) {
    device.threads = 1;
    device.host_cores = 1;
    device.kind.set_kernel_overhead_ns(1000);
  }
  LinkTable table;
  table.crowds[{"a", 2, 1}] = {300, 50};  // One device alone was not measured: half of the core.
  EXPECT_DOUBLE_EQ(JobCluster(devices, table)->kinds()[0].flops_per_second, 0.5e9);
  table.crowds[{"a", 1, 1}] = {200, 20};
  const DeviceKind together = JobCluster(devices, table)->kinds()[0];
  EXPECT_DOUBLE_EQ(together.flops_per_second, 1e9 / 2 / 1.5);
  EXPECT_DOUBLE_EQ(together.memory_bytes_per_second, 1e9 / 2 / 2.5);
  EXPECT_EQ(together.kernel_overhead, 3000);
  const DeviceKind alone = JobCluster({devices[0]}, table)->kinds()[0];
  EXPECT_DOUBLE_EQ(alone.flops_per_second, 1e9);
}

}  // namespace
}  // namespace stagewright
