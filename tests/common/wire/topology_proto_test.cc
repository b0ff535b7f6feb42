#include "common/wire/topology_proto.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/topology/presets.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

TEST(TopologyProtoTest, ClustersRoundTrip) {
  for (const char* preset : {"summit:2", "dgx-a100:2", "dgx-h100:1", "cpu:3"}) {
    const auto cluster = ClusterPreset(preset);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    const v1::Cluster proto = ToProto(*cluster);
    const auto again = FromProto(proto);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(ToProto(*again).SerializeAsString(), proto.SerializeAsString()) << preset;
  }
}

TEST(TopologyProtoTest, RatesAndEfficiencyArrive) {
  DeviceKind kind = ClusterPreset("dgx-h200:1")->kinds()[0];
  kind.update_bytes_per_second = 2e10;
  const DeviceKind again = FromProto(ToProto(kind));
  EXPECT_EQ(again.update_bytes_per_second, 2e10);
  EXPECT_EQ(again.flops_per_second, 67e12);
  EXPECT_EQ(again.tf32_flops_per_second, 494.5e12);
  EXPECT_EQ(again.bf16_flops_per_second, 989e12);
  EXPECT_EQ(again.fp16_flops_per_second, 989e12);
  EXPECT_EQ(again.efficiency, kind.efficiency);
  EXPECT_EQ(again.unaligned_slowdown, kind.unaligned_slowdown);
  EXPECT_TRUE(again.asynchronous);
  EXPECT_EQ(FromProto(v1::DeviceKind()).unaligned_slowdown, 1) << "of a worker that does not know";
  EXPECT_FALSE(FromProto(v1::DeviceKind()).asynchronous);
  v1::DeviceKind later = ToProto(kind);
  later.mutable_efficiency(1)->set_type(static_cast<v1::ProductType>(77));
  EXPECT_THAT(std::string(CheckKind(FromProto(later), "kind").message()),
              HasSubstr("kind.efficiency[1].points is empty"));
}

TEST(TopologyProtoTest, HostileIndicesAreRefused) {
  const v1::Cluster good = ToProto(*ClusterPreset("summit:2"));
  for (int32_t index : {-1, 1 << 30}) {
    v1::Cluster bad = good;
    bad.mutable_devices(0)->set_kind(index);
    EXPECT_EQ(FromProto(bad).status().code(), absl::StatusCode::kInvalidArgument);
    bad = good;
    bad.mutable_routes(0)->set_from(index);
    EXPECT_EQ(FromProto(bad).status().code(), absl::StatusCode::kInvalidArgument);
    bad = good;
    bad.mutable_routes(0)->set_to(index);
    EXPECT_EQ(FromProto(bad).status().code(), absl::StatusCode::kInvalidArgument);
    bad = good;
    bad.mutable_routes(0)->set_links(0, index);
    EXPECT_EQ(FromProto(bad).status().code(), absl::StatusCode::kInvalidArgument);
  }
  // A million devices are refused before a route is made for each pair.
  v1::Cluster many;
  for (int i = 0; i < 1'000'000; ++i) many.add_devices();
  EXPECT_THAT(std::string(FromProto(many).status().message()),
              HasSubstr("1000000 are more than the 1024 supported"));
}

}  // namespace
}  // namespace stagewright
