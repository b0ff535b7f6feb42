#include "worker_daemon/daemon/gpu_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class GpuMachineTest : public ::testing::Test {
 protected:
  GpuMachineTest() { unsetenv("NVML_DOUBLE"); }
  ~GpuMachineTest() override { unsetenv("NVML_DOUBLE"); }

  static v1::GpuMachine Described(const char* wrong = nullptr) {
    if (wrong != nullptr) setenv("NVML_DOUBLE", wrong, 1);
    const auto machine = DescribeGpuMachine(/*needed=*/false, NVML_DOUBLE_LIBRARY);
    EXPECT_TRUE(machine.has_value());
    return machine.value_or(v1::GpuMachine());
  }
};

TEST_F(GpuMachineTest, HasTheDriverAndEveryGpu) {
  const v1::GpuMachine machine = Described();
  EXPECT_EQ(machine.driver_version(), "580.82.07");
  EXPECT_EQ(machine.driver_cuda(), 13000);
  EXPECT_EQ(machine.trouble(), "");
  ASSERT_EQ(machine.gpus_size(), 2);
  EXPECT_EQ(machine.gpus(1).name(), "Double B");
  EXPECT_EQ(machine.gpus(1).uuid(), "GPU-00000000-0000-0000-0000-000000000001");
  EXPECT_EQ(machine.gpus(1).memory_bytes(), int64_t{150} << 30);
  EXPECT_EQ(machine.gpus(1).clock_mhz(), 1900);
  EXPECT_EQ(machine.gpus(1).highest_clock_mhz(), 1980);
  EXPECT_THAT(machine.gpus(1).slowdowns(), IsEmpty());
  EXPECT_THAT(machine.gpus(1).no_peer_access(), IsEmpty());
}

TEST_F(GpuMachineTest, HasWhatSlowsDownAndWhatIsOutOfReach) {
  EXPECT_THAT(Described("hot").gpus(1).slowdowns(), ElementsAre(v1::GPU_SLOWDOWN_HEAT));
  const v1::GpuMachine apart = Described("apart");
  EXPECT_THAT(apart.gpus(0).no_peer_access(), ElementsAre(1));
  EXPECT_THAT(apart.gpus(1).no_peer_access(), ElementsAre(0));
  EXPECT_THAT(Described("slice").gpus(0).no_peer_access(), IsEmpty());
}

TEST_F(GpuMachineTest, ADriverThatFailsIsTrouble) {
  EXPECT_THAT(Described("lost").trouble(), HasSubstr("GPU 1's memory: GPU is lost"));
  setenv("NVML_DOUBLE", "no_driver", 1);
  EXPECT_FALSE(DescribeGpuMachine(/*needed=*/false, NVML_DOUBLE_LIBRARY).has_value());
  const auto needed = DescribeGpuMachine(/*needed=*/true, NVML_DOUBLE_LIBRARY);
  ASSERT_TRUE(needed.has_value());
  EXPECT_THAT(needed->trouble(), HasSubstr("Driver Not Loaded"));
  EXPECT_EQ(needed->driver_version(), "");
}

TEST_F(GpuMachineTest, NothingIsToldWhereNothingIs) {
  EXPECT_FALSE(DescribeGpuMachine(false, "libnvidia-ml-that-is-not-there.so.1").has_value());
  const auto needed = DescribeGpuMachine(true, "libnvidia-ml-that-is-not-there.so.1");
  ASSERT_TRUE(needed.has_value());
  EXPECT_THAT(needed->trouble(), HasSubstr("cannot load NVML"));
}

}  // namespace
}  // namespace stagewright
