#include "planner_service/profiles/profile_choice.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner_service/jobs/job_cluster.h"

namespace stagewright {
namespace {

RegisteredDevice Device(const std::string& kind, const std::string& software, int threads) {
  RegisteredDevice device;
  device.kind.set_name(kind);
  device.kind.set_flops_per_second(1e9);
  device.kind.set_memory_bytes_per_second(1e9);
  device.device.set_memory_bytes(1 << 20);
  device.device.set_name("cpu0");
  device.software = software;
  device.host_address = "machine";
  device.host_cores = 2;
  device.threads = threads;
  return device;
}

OperatorProfile Chosen(std::vector<RegisteredDevice> devices, const OperatorProfile& known) {
  for (size_t i = 0; i < devices.size(); ++i) devices[i].worker = absl::StrCat("w", i);
  const auto cluster = JobCluster(devices, {});
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  return ProfileOf(devices, *cluster, known);
}

OperatorProfile Known() {
  OperatorProfile profile;
  for (const char* kind : {"cpu", "gpu"}) {
    for (const char* software : {"old", "new"})
      profile.devices[{kind, software}]["mm"] = {"2026-11-22", {{1, 1, 0, 0, 0, 0, 0}}};
  }
  return profile;
}

TEST(ProfileChoice, TakesTheDevicesKindsWithTheirSoftware) {
  const OperatorProfile chosen =
      Chosen({Device("cpu", "new", 1), Device("cpu", "new", 1)}, Known());
  ASSERT_EQ(chosen.devices.size(), 1u);
  EXPECT_EQ(chosen.devices.begin()->first, (ProfiledDevice{"cpu", "new"}));
  EXPECT_EQ(chosen.devices.begin()->second.size(), 1u);
  EXPECT_TRUE(Chosen({Device("cpu", "newer", 1)}, Known()).empty());
  EXPECT_TRUE(Chosen({Device("tpu", "new", 1)}, Known()).empty());
}

// Workers that measure themselves while other programs have the cores seem to be of several kinds.
TEST(ProfileChoice, HoldsForAllDevicesOfAKindHoweverFastTheySeem) {
  std::vector<RegisteredDevice> devices = {Device("cpu", "new", 1), Device("cpu", "new", 1)};
  devices[0].worker = "w0";
  devices[1].worker = "w1";
  devices[1].kind.set_flops_per_second(3e9);
  const auto cluster = JobCluster(devices, {});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ASSERT_EQ(cluster->kinds().size(), 2u);
  const OperatorProfile chosen = ProfileOf(devices, *cluster, Known());
  for (const DeviceKind& kind : cluster->kinds())
    EXPECT_TRUE(chosen.devices.count({kind.name, "new"}) == 1) << kind.name;
}

TEST(ProfileChoice, LeavesOutKindsWhoseDevicesDiffer) {
  std::vector<RegisteredDevice> devices = {Device("cpu", "new", 1), Device("cpu", "old", 1)};
  EXPECT_TRUE(Chosen(devices, Known()).empty());
}

TEST(ProfileChoice, TakesThoseOfDevicesThatShareCores) {
  const std::vector<RegisteredDevice> devices = {Device("cpu", "new", 2), Device("cpu", "new", 1)};
  EXPECT_EQ(Chosen(devices, Known()).devices.size(), 1u) << "the cluster knows how it slows";
}

}  // namespace
}  // namespace stagewright
