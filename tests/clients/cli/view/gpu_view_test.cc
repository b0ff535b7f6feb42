#include "clients/cli/view/gpu_view.h"

#include <gtest/gtest.h>

namespace stagewright::cli {
namespace {

TEST(GpuView, VersionsAreAsPeopleWriteThem) {
  EXPECT_EQ(CudaVersionText(13000), "13.0");
  EXPECT_EQ(CudaVersionText(12080), "12.8");
  EXPECT_EQ(NcclVersionText(22809), "2.28.9");
  EXPECT_EQ(NcclVersionText(23007), "2.30.7");
}

TEST(GpuView, EverySlowdownHasAName) {
  for (int i = v1::GpuSlowdown_MIN + 1; i <= v1::GpuSlowdown_MAX; ++i)
    EXPECT_NE(SlowdownName(static_cast<v1::GpuSlowdown>(i)), "unknown") << i;
}

TEST(GpuView, WhatIsNotKnownIsNull) {
  v1::GpuMachine machine;
  machine.set_driver_version("580.82.07");
  machine.set_driver_cuda(13000);
  v1::Gpu& gpu = *machine.add_gpus();
  gpu.set_uuid("GPU-1");
  gpu.set_clock_mhz(600);
  gpu.add_slowdowns(v1::GPU_SLOWDOWN_POWER_BRAKE);
  gpu.add_no_peer_access(1);
  const nlohmann::json json = GpuMachineJson(machine);
  EXPECT_EQ(json["driver_cuda"], "13.0");
  EXPECT_EQ(json["runtime_cuda"], nullptr);
  EXPECT_EQ(json["nccl"], nullptr);
  EXPECT_EQ(json["gpus"][0]["clock_mhz"], 600);
  EXPECT_EQ(json["gpus"][0]["slowdowns"], nlohmann::json({"power brake"}));
  EXPECT_EQ(json["gpus"][0]["no_peer_access"], nlohmann::json({1}));
}

}  // namespace
}  // namespace stagewright::cli
