#include "worker_daemon/executor/engine_rates.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "common/base/regular_file.h"
#include "worker_daemon/device/device_rates.h"

namespace stagewright {
namespace {

// Whatever the machine does besides, these are costs of a computer, and rates keep their ratios.
TEST(EngineRates, FillsInFixedCostsAndLowersRates) {
  at::set_num_threads(1);  // As jobs on CPUs have.
  const DeviceKind alone = MeasureDeviceRates("cpu", "this");
  const auto kind = MeasureEngine(alone, "cpu");
  ASSERT_TRUE(kind.ok()) << kind.status();
  EXPECT_EQ(kind->name, "this");
  EXPECT_GT(kind->parameter_overhead, 0);
  EXPECT_LT(kind->parameter_overhead, kSecond);
  EXPECT_GT(kind->pass_overhead + kind->step_overhead, 0);
  EXPECT_LT(kind->pass_overhead + kind->step_overhead, kSecond);
  EXPECT_GT(kind->update_bytes_per_second, 1e6);
  EXPECT_LT(kind->update_bytes_per_second, 1e15);
  const double share = kind->flops_per_second / alone.flops_per_second;
  EXPECT_GT(share, 0);
  EXPECT_LE(share, 1);
  EXPECT_NEAR(kind->memory_bytes_per_second / alone.memory_bytes_per_second, share, 1e-9);
  EXPECT_NEAR(kind->bf16_flops_per_second / alone.bf16_flops_per_second, share, 1e-9);
  EXPECT_EQ(kind->kernel_overhead, alone.kernel_overhead);
  EXPECT_TRUE(CheckKind(*kind, "kind").ok()) << CheckKind(*kind, "kind");
}

// Whoever is killed leaves nothing, and no worker is confined too narrowly.
TEST(EngineRates, NeedsNoFileOfAnyName) {
  at::set_num_threads(1);
  setenv("TMPDIR", "/no/such/folder", /*overwrite=*/1);
  ASSERT_TRUE(ConfineFiles({.read = {"/"}, .write = {"/no/such/folder"}}));
  const auto kind = MeasureEngine(MeasureDeviceRates("cpu", "this"), "cpu");
  ConfineFiles({});
  EXPECT_TRUE(kind.ok()) << kind.status();
}

TEST(EngineRates, SaysWhatIsWrongWithADevice) {
  EXPECT_FALSE(MeasureEngine(MeasureDeviceRates("cpu", "this"), "no device").ok());
}

}  // namespace
}  // namespace stagewright
