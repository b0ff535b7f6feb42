#include "common/topology/preset_device.h"

#include <gtest/gtest.h>

#include "common/topology/presets.h"

namespace stagewright {
namespace {

TEST(PresetDeviceTest, DevicesOfPresetsAreCalledSo) {
  for (const char* preset : {"summit:12", "cpu:2", "uniform:2x11"}) {
    const auto cluster = ClusterPreset(preset);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    for (const Device& device : cluster->devices()) EXPECT_TRUE(IsPresetDevice(device.name));
  }
  EXPECT_EQ(PresetDevice(11, 3), "node11/device3");
}

TEST(PresetDeviceTest, OthersAreNot) {
  for (const char* name : {"", "node0", "node0/cpu0", "gpu0", "w1/device0", "node/device0",
                           "node0/device", "node0/device1a", "nodes0/device1", "node-1/device0"})
    EXPECT_FALSE(IsPresetDevice(name)) << name;
}

}  // namespace
}  // namespace stagewright
