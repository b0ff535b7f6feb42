#include "common/topology/uniform.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "common/topology/presets.h"

namespace stagewright {
namespace {

TEST(UniformTest, EveryOrderedPairHasALinkOfItsOwn) {
  const auto cluster = ClusterPreset("uniform:4");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ASSERT_EQ(cluster->size(), 4);
  EXPECT_TRUE(cluster->Homogeneous());
  EXPECT_EQ(cluster->name(), "uniform:4");
  EXPECT_GE(cluster->device(DeviceId(0)).memory, Bytes{int64_t{1} << 50});
  std::set<int32_t> links;
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < 4; ++b) {
      if (a == b) continue;
      const Route& route = cluster->route(DeviceId(a), DeviceId(b));
      ASSERT_EQ(route.links.size(), 1u);
      EXPECT_TRUE(links.insert(route.links[0]).second);
      EXPECT_EQ(route.latency, 20 * kMicrosecond);
      EXPECT_EQ(route.bytes_per_second, 12.5e9);
    }
  }
}

TEST(UniformTest, TheDeviceAddsNothingToProfiledTimes) {
  const auto cluster = ClusterPreset("uniform:1");
  ASSERT_TRUE(cluster.ok());
  const DeviceKind& kind = cluster->kinds()[0];
  EXPECT_EQ(kind.kernel_overhead, 0);
  EXPECT_EQ(kind.half_efficiency_flops, 0);
  EXPECT_LE(1e15 / kind.memory_bytes_per_second * 1e9, 1);  // A petabyte in a nanosecond.
}

TEST(UniformTest, OnlyItsDevicesTakeNoTime) {
  for (const auto& [preset, description] : ClusterPresets()) {
    const auto cluster = ClusterPreset(preset + ":2");
    ASSERT_TRUE(cluster.ok());
    EXPECT_EQ(OnlyForMeasuredTimes(cluster->kinds()[0]), preset == "uniform") << description;
  }
}

TEST(UniformTest, OptionsAndUnits) {
  const auto cluster = ClusterPreset("uniform:8,bandwidth=1e9,latency=0,memory=16GiB");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->device(DeviceId(7)).memory, 16 * kGiB);
  EXPECT_EQ(cluster->route(DeviceId(0), DeviceId(7)).latency, 0);
  EXPECT_EQ(cluster->route(DeviceId(0), DeviceId(7)).bytes_per_second, 1e9);
  const auto units = ClusterPreset("uniform:2,latency=1.5us,bandwidth=2GB/s,memory=3e9");
  ASSERT_TRUE(units.ok()) << units.status();
  EXPECT_EQ(units->route(DeviceId(0), DeviceId(1)).latency, 1500);
  EXPECT_EQ(units->route(DeviceId(0), DeviceId(1)).bytes_per_second, 2e9);
  EXPECT_EQ(units->device(DeviceId(0)).memory, 3'000'000'000);
}

TEST(UniformTest, NodesOfDevices) {
  const auto cluster =
      ClusterPreset("uniform:2x4,outside-bandwidth=1GB/s,bandwidth=25GB/s,latency=1ms");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ASSERT_EQ(cluster->size(), 8);
  EXPECT_EQ(cluster->device(DeviceId(3)).node, 0);
  EXPECT_EQ(cluster->device(DeviceId(4)).node, 1);
  EXPECT_EQ(cluster->route(DeviceId(0), DeviceId(3)).bytes_per_second, 25e9);
  EXPECT_EQ(cluster->route(DeviceId(0), DeviceId(4)).bytes_per_second, 1e9);
  EXPECT_EQ(cluster->route(DeviceId(0), DeviceId(4)).latency, kMillisecond);
}

TEST(UniformTest, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"uniform", "give the number of devices"},
      {"uniform:", "give the number of devices"},
      {"uniform:0", "give the number of devices"},
      {"uniform:2x", "give the number of devices"},
      {"uniform:ax2", "give the number of devices"},
      {"uniform:2000", "1 x 2000 are not between 1 and 1024"},
      {"uniform:40000x100000", "40000 x 100000 are not between"},
      {"uniform:2,speed=3", "speed: is not known; there are bandwidth"},
      {"uniform:2,", ": is not known"},
      {"uniform:2,bandwidth", "bandwidth: \"\" is not a number"},
      {"uniform:2,bandwidth=nan", "bandwidth: \"nan\" is not a number, above 0, in B/s"},
      {"uniform:2,bandwidth=0", "bandwidth: \"0\" is not a number, above 0, in B/s"},
      {"uniform:2,bandwidth=3GiB", "bandwidth: \"3GiB\" is not a number, above 0, in B/s"},
      {"uniform:2,latency=-1", "latency: \"-1\" is not a number, 0 or more, in s"},
      {"uniform:2,latency=1e9", "latency: is over an hour"},
      {"uniform:2,memory=0", "memory: \"0\" is not a number, above 0, in B"},
      {"uniform:2,memory=1e300", "memory: is over 1 EiB"},
  };
  for (const auto& [name, message] : cases) {
    const auto cluster = ClusterPreset(name);
    EXPECT_EQ(cluster.status().code(), absl::StatusCode::kInvalidArgument) << name;
    const std::string text(cluster.status().message());
    EXPECT_THAT(text, ::testing::StartsWith(std::string("cluster preset \"") + name + "\": "));
    EXPECT_THAT(text, ::testing::HasSubstr(message));
  }
}

}  // namespace
}  // namespace stagewright
