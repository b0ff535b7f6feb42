#include "worker_daemon/device/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NvmlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv("NVML_DOUBLE");
    unsetenv("NVML_DOUBLE_OPEN");
  }
};

TEST_F(NvmlTest, ReadsEveryGpu) {
  auto nvml = Nvml::Open(NVML_DOUBLE_LIBRARY);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  auto gpus = (*nvml)->Gpus();
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  ASSERT_EQ(gpus->size(), 2u);
  for (int i = 0; i < 2; ++i) {
    const GpuReading& gpu = (*gpus)[i];
    EXPECT_EQ(gpu.name, i == 0 ? "Double A" : "Double B");
    EXPECT_EQ(gpu.uuid, std::string("GPU-00000000-0000-0000-0000-00000000000") + (i ? "1" : "0"));
    EXPECT_EQ(gpu.memory, 150 * kGiB);
    EXPECT_EQ(gpu.free_memory, 100 * kGiB + Bytes(i));
    EXPECT_EQ(gpu.utilisation_percent, 40 + i);
    EXPECT_EQ(gpu.clock_mhz, 1900);
    EXPECT_EQ(gpu.highest_clock_mhz, 1980);
    EXPECT_TRUE(gpu.slowdowns.empty());  // To have nothing to do is none.
  }
}

TEST_F(NvmlTest, ReadsTheDriver) {
  auto nvml = Nvml::Open(NVML_DOUBLE_LIBRARY);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const auto driver = (*nvml)->Driver();
  ASSERT_TRUE(driver.ok()) << driver.status();
  EXPECT_EQ(driver->version, "580.82.07");
  EXPECT_EQ(driver->cuda, 13000);
}

TEST_F(NvmlTest, TellsWhatSlowsAGpuDown) {
  auto nvml = Nvml::Open(NVML_DOUBLE_LIBRARY);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  setenv("NVML_DOUBLE", "hot", 1);
  const auto gpus = (*nvml)->Gpus();
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  EXPECT_TRUE((*gpus)[0].slowdowns.empty());
  EXPECT_THAT((*gpus)[1].slowdowns, ElementsAre(GpuSlowdown::kHeat));
  EXPECT_EQ((*gpus)[1].clock_mhz, 600);
}

TEST_F(NvmlTest, TellsWhichGpusReachEachOther) {
  auto nvml = Nvml::Open(NVML_DOUBLE_LIBRARY);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  EXPECT_EQ((*nvml)->HasPeerAccess(0, 1), true);
  setenv("NVML_DOUBLE", "apart", 1);
  EXPECT_EQ((*nvml)->HasPeerAccess(0, 1), false);
  setenv("NVML_DOUBLE", "slice", 1);
  EXPECT_EQ((*nvml)->HasPeerAccess(0, 1), std::nullopt);
  EXPECT_EQ((*nvml)->HasPeerAccess(0, 7), std::nullopt);
}

TEST_F(NvmlTest, AMachineWithoutTheLibraryGetsAnError) {
  const auto nvml = Nvml::Open("libnvidia-ml-that-is-not-there.so.1");
  EXPECT_EQ(nvml.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(nvml.status().message()), HasSubstr("libnvidia-ml-that-is-not-there"));
}

TEST_F(NvmlTest, ALibraryThatLacksAFunctionIsNamed) {
  const auto nvml = Nvml::Open("libm.so.6");
  EXPECT_EQ(nvml.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(nvml.status().message(), "NVML has no function nvmlInit_v2");
}

TEST_F(NvmlTest, ALibraryWithoutADriverGetsItsReason) {
  setenv("NVML_DOUBLE", "no_driver", 1);
  const auto nvml = Nvml::Open(NVML_DOUBLE_LIBRARY);
  EXPECT_EQ(nvml.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(nvml.status().message(), "NVML: initialisation: Driver Not Loaded");
}

TEST_F(NvmlTest, AGpuThatIsLostIsNamed) {
  auto nvml = Nvml::Open(NVML_DOUBLE_LIBRARY);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  setenv("NVML_DOUBLE", "lost", 1);
  EXPECT_EQ((*nvml)->Gpus().status().message(), "NVML: GPU 1's memory: GPU is lost");
}

TEST_F(NvmlTest, UtilisationThatIsNotToldIsNoError) {
  auto nvml = Nvml::Open(NVML_DOUBLE_LIBRARY);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  setenv("NVML_DOUBLE", "slice", 1);
  auto gpus = (*nvml)->Gpus();
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  EXPECT_EQ((*gpus)[0].utilisation_percent, 40);
  EXPECT_EQ((*gpus)[1].utilisation_percent, -1);
  EXPECT_EQ((*gpus)[1].clock_mhz, 0);
  EXPECT_EQ((*gpus)[1].highest_clock_mhz, 0);
}

TEST_F(NvmlTest, EndsWhatItBegan) {
  auto nvml = Nvml::Open(NVML_DOUBLE_LIBRARY);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  EXPECT_STREQ(std::getenv("NVML_DOUBLE_OPEN"), "1");
  nvml->reset();
  EXPECT_STREQ(std::getenv("NVML_DOUBLE_OPEN"), "0");
}

}  // namespace
}  // namespace stagewright
