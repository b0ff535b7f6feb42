#include "common/topology/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/topology/cluster.h"

namespace stagewright {
namespace {

TEST(Presets, EveryListedNameWorks) {
  const auto presets = ClusterPresets();
  ASSERT_EQ(presets.size(), 7u);
  for (const auto& [name, description] : presets) {
    EXPECT_FALSE(description.empty());
    for (int nodes : {1, 2, 5}) {
      const auto cluster = ClusterPreset(name + ":" + std::to_string(nodes));
      ASSERT_TRUE(cluster.ok()) << cluster.status();
      EXPECT_EQ(cluster->devices().back().node, name == "uniform" ? 0 : nodes - 1);
      EXPECT_TRUE(cluster->Homogeneous());
      EXPECT_EQ(cluster->name(), name + ":" + std::to_string(nodes));
    }
  }
}

TEST(Presets, SummitIsThePapersCluster) {
  const auto cluster = ClusterPreset("summit:8");
  ASSERT_TRUE(cluster.ok());
  ASSERT_EQ(cluster->size(), 32);
  const DeviceId a(0), b(3), c(4);
  EXPECT_LE(cluster->device(a).memory, 16 * kGiB);
  EXPECT_GT(cluster->device(a).memory, 14 * kGiB);
  // NVLink inside is several times as fast as 100 Gb/s between nodes.
  const double inside = cluster->route(a, b).bytes_per_second;
  const double between = cluster->route(a, c).bytes_per_second;
  EXPECT_GT(inside, 3 * between);
  EXPECT_LE(between, 12.5e9);
  // All devices of a node share one way out.
  EXPECT_EQ(cluster->route(a, c).links[0], cluster->route(b, c).links[0]);
  // The way back is another one: links are full duplex.
  EXPECT_NE(cluster->route(a, c).links[0], cluster->route(c, a).links[1]);
}

TEST(Presets, DgxHasAnUplinkPerDevice) {
  const auto cluster = ClusterPreset("dgx-a100:2");
  ASSERT_TRUE(cluster.ok());
  ASSERT_EQ(cluster->size(), 16);
  EXPECT_NE(cluster->route(DeviceId(0), DeviceId(8)).links[0],
            cluster->route(DeviceId(1), DeviceId(8)).links[0]);
}

DeviceKind KindOf(const std::string& preset) { return ClusterPreset(preset)->kinds()[0]; }

TEST(Presets, SmallerTypesAreNeverSlower) {
  for (const char* name : {"summit:1", "dgx-a100:1", "dgx-h100:1", "dgx-h200:1", "cpu:1"}) {
    const DeviceKind kind = KindOf(name);
    for (ProductKind operators :
         {ProductKind::kMatmul, ProductKind::kConvolution, ProductKind::kAttention}) {
      for (double flops = 1e6; flops < 1e14; flops *= 2) {
        const double seconds = ProductSeconds(kind, operators, ProductType::kFloat32, flops);
        for (ProductType type : {ProductType::kTF32, ProductType::kBFloat16, ProductType::kFloat16})
          EXPECT_LE(ProductSeconds(kind, operators, type, flops), seconds) << name << " " << flops;
      }
    }
  }
}

TEST(Presets, LargeProductsReachWhatWasMeasured) {
  const auto reached = [](const std::string& preset) {
    return 1e14 /
           ProductSeconds(KindOf(preset), ProductKind::kMatmul, ProductType::kBFloat16, 1e14);
  };
  EXPECT_NEAR(reached("dgx-a100:1"), 271.2e12, 1e12);
  EXPECT_NEAR(reached("dgx-h100:1"), 794.5e12, 2e12);
}

// What cuBLAS took for the three products of a head of 50,257 columns (docs/benchmarks.md).
TEST(Presets, UnalignedProductsOnHopperReachWhatWasMeasured) {
  const double flops = 2.0 * 8192 * 1024 * 50257;
  for (const char* preset : {"dgx-h100:1", "dgx-h200:1"}) {
    const DeviceKind kind = KindOf(preset);
    const double aligned =
        ProductSeconds(kind, ProductKind::kMatmul, ProductType::kBFloat16, flops);
    EXPECT_NEAR(aligned * kind.unaligned_slowdown, (8.747e-3 + 6.026e-3 + 5.688e-3) / 3, 1e-4);
  }
}

TEST(Presets, GpusComputeWhileTheHostLaunches) {
  for (const char* preset : {"dgx-a100:1", "dgx-h100:1", "dgx-h200:1"})
    EXPECT_TRUE(KindOf(preset).asynchronous) << preset;
  // The papers' programs, whose times are taken as they were measured, and processors.
  for (const char* preset : {"summit:1", "summit-flexflow:1", "cpu:1"}) {
    EXPECT_FALSE(KindOf(preset).asynchronous) << preset;
    EXPECT_EQ(KindOf(preset).unaligned_slowdown, 1) << preset;
  }
}

// GraphPipe's section 7.5: a layer of MMT (hidden size 1,024, 256 tokens a sample) gains a tenth
// per sample from micro-batches of 4 instead of 2.
TEST(Presets, FlexFlowsProductsGainATenthFromTwiceTheMicroBatch) {
  const DeviceKind kind = KindOf("summit-flexflow:1");
  const double tokens = 256, hidden = 1024;
  const auto layer = [&](double samples) {
    double seconds = 0;
    // Query, key and value at once; attention; its projection; the two feed-forward products.
    for (double width : {3 * hidden, 2 * tokens, hidden, 4 * hidden, 4 * hidden}) {
      seconds += ProductSeconds(kind, ProductKind::kMatmul, ProductType::kFloat32,
                                samples * 2 * tokens * hidden * width);
    }
    return seconds / samples;
  };
  EXPECT_NEAR(layer(2) / layer(4), 1.1, 0.005);
}

TEST(Presets, KindsByName) {
  const auto kind = PresetDeviceKind("h100-80g");
  ASSERT_TRUE(kind.ok()) << kind.status();
  EXPECT_EQ(kind->bf16_flops_per_second, KindOf("dgx-h100:1").bf16_flops_per_second);
  const auto unknown = PresetDeviceKind("h100");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(unknown.status().message(),
            "there is no device kind \"h100\"; there are v100-16g, v100-flexflow, a100-80g, "
            "h100-80g, h200-141g, cpu-core");
}

TEST(Presets, BadNames) {
  const auto unknown = ClusterPreset("summmit:8");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(unknown.status().message(),
            "there is no cluster preset \"summmit:8\"; presets are summit:N, "
            "summit-flexflow:N, dgx-a100:N, dgx-h100:N, dgx-h200:N, cpu:N with N nodes and "
            "uniform:N with N devices");
  for (const char* name : {"summit", "summit:", "summit:0", "summit:-1", "summit:x", "summit:8x",
                           "summit:99999999999"}) {
    const auto bad = ClusterPreset(name);
    EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(bad.status().message(), std::string("cluster preset \"") + name +
                                          "\": give the number of nodes, 1 or more, as in "
                                          "\"summit:2\"");
  }
  EXPECT_EQ(ClusterPreset("summit:999999").status().message(),
            "cluster preset \"summit:999999\": nodes: 3999996 devices are more than the 1024 "
            "supported");
}

}  // namespace
}  // namespace stagewright
