#include "worker_daemon/device/cpu_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(CpuName, TellsVendorModelAndVectorExtension) {
  const char* cpuinfo =
      "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\n"
      "model name\t: Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz\nflags\t\t:\n\n"
      "processor\t: 1\nmodel\t\t: 107\n";
  EXPECT_EQ(CpuName(cpuinfo, "x86_64", "AVX512"), "Intel Xeon Platinum 8375C (6-106), AVX512");
}

TEST(CpuName, TellsApartWhatAHypervisorGivesOneName) {
  const char* zen4 = "cpu family\t: 25\nmodel\t: 17\nmodel name\t: AMD EPYC\n";
  const char* zen5 = "cpu family\t: 26\nmodel\t: 2\nmodel name\t: AMD EPYC\n";
  EXPECT_NE(CpuName(zen4, "x86_64", "AVX2"), CpuName(zen5, "x86_64", "AVX2"));
}

TEST(CpuName, GoesByNumbersWhereAProcessorHasNoName) {
  EXPECT_EQ(CpuName("CPU implementer\t: 0x41\nCPU part\t: 0xd40\n", "aarch64", "SVE256"),
            "aarch64 (0x41-0xd40), SVE256");
  EXPECT_EQ(CpuName("", "riscv64", ""), "riscv64");
}

TEST(CpuName, IsTheSameEveryTime) {
  EXPECT_FALSE(ThisCpuName().empty());
  EXPECT_EQ(ThisCpuName(), ThisCpuName());
}

}  // namespace
}  // namespace stagewright
