#include "planner_service/profiles/profile_choice.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

RegisteredDevice Device(const std::string& kind, const std::string& software, int threads) {
  RegisteredDevice device;
  device.kind.set_name(kind);
  device.software = software;
  device.host_address = "machine";
  device.host_cores = 2;
  device.threads = threads;
  return device;
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
      ProfileOf({Device("cpu", "new", 1), Device("cpu", "new", 1)}, Known());
  ASSERT_EQ(chosen.devices.size(), 1u);
  EXPECT_EQ(chosen.devices.begin()->first, (ProfiledDevice{"cpu", "new"}));
  EXPECT_EQ(chosen.devices.begin()->second.size(), 1u);
  EXPECT_TRUE(ProfileOf({Device("cpu", "newer", 1)}, Known()).empty());
  EXPECT_TRUE(ProfileOf({Device("tpu", "new", 1)}, Known()).empty());
}

TEST(ProfileChoice, LeavesOutKindsWhoseDevicesDiffer) {
  std::vector<RegisteredDevice> devices = {Device("cpu", "new", 1), Device("cpu", "old", 1)};
  EXPECT_TRUE(ProfileOf(devices, Known()).empty());
}

TEST(ProfileChoice, TakesThoseOfDevicesThatShareCores) {
  const std::vector<RegisteredDevice> devices = {Device("cpu", "new", 2), Device("cpu", "new", 1)};
  EXPECT_EQ(ProfileOf(devices, Known()).devices.size(), 1u) << "the cluster knows how it slows";
}

}  // namespace
}  // namespace stagewright
