#include "planner_service/links/probes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

RegisteredDevice DeviceOf(const std::string& worker, const std::string& host,
                          const std::string& name = "cpu0") {
  RegisteredDevice device;
  device.worker = worker;
  device.host_address = host;
  device.device.set_name(name);
  device.threads = 1;
  device.probes_links = true;
  return device;
}

std::vector<std::string> Names(const std::vector<Probe>& probes) {
  std::vector<std::string> names;
  for (const Probe& probe : probes) names.push_back(probe.Name());
  return names;
}

TEST(ProbesToDo, EveryPairOfWorkersThenEveryNumberOfDevicesOfAMachine) {
  const std::vector<RegisteredDevice> devices = {DeviceOf("a", "h"), DeviceOf("b", "h"),
                                                 DeviceOf("c", "g")};
  EXPECT_THAT(Names(ProbesToDo(devices, {}, {})),
              ElementsAre("a - b", "a - c", "b - c", "1 devices of h, 1 threads each",
                          "2 devices of h, 1 threads each"));
}

TEST(ProbesToDo, DevicesOfOneWorkerAreAPairOfTheirOwn) {
  const std::vector<RegisteredDevice> devices = {DeviceOf("a", "h"), DeviceOf("a", "h", "cpu1"),
                                                 DeviceOf("a", "h", "cpu2")};
  const std::vector<Probe> probes = ProbesToDo(devices, {}, {});
  ASSERT_EQ(probes.size(), 4u);
  EXPECT_EQ(probes[0].Name(), "a - a");
  EXPECT_EQ(probes[0].participants[1].device, "cpu1");
}

TEST(ProbesToDo, WhatIsKnownIsNotMeasuredUnlessAskedFor) {
  const std::vector<RegisteredDevice> devices = {DeviceOf("a", "h"), DeviceOf("b", "g")};
  LinkTable table;
  table.links[{"a", "b"}] = {1, 1e9};
  EXPECT_THAT(Names(ProbesToDo(devices, table, {})), ElementsAre("a - b"));  // One way only.
  table.links[{"b", "a"}] = {1, 1e9};
  EXPECT_THAT(ProbesToDo(devices, table, {}), IsEmpty());
  EXPECT_THAT(Names(ProbesToDo(devices, table, {"a - b"})), ElementsAre("a - b"));
}

TEST(ProbesToDo, LeavesOutGpusAndWorkersThatDoNotProbe) {
  std::vector<RegisteredDevice> devices = {DeviceOf("a", "h"), DeviceOf("b", "h"),
                                           DeviceOf("c", "h")};
  devices[0].threads = 0;
  devices[1].probes_links = false;
  EXPECT_THAT(ProbesToDo(devices, {}, {}), IsEmpty());
}

TEST(MayRun, NotWhileAJobRunsOnAMachineOfTheProbe) {
  std::vector<RegisteredDevice> devices = {DeviceOf("a", "h"), DeviceOf("b", "g"),
                                           DeviceOf("c", "h"), DeviceOf("d", "i")};
  const Probe probe{{{"a", "cpu0"}, {"b", "cpu0"}}, {}};
  EXPECT_TRUE(MayRun(probe, devices));
  devices[3].job = "jobs/1";  // Another machine.
  EXPECT_TRUE(MayRun(probe, devices));
  devices[2].job = "jobs/1";  // Another worker of a's machine.
  EXPECT_FALSE(MayRun(probe, devices));
}

}  // namespace
}  // namespace stagewright
