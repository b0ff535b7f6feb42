#include "worker_daemon/device/device_fault.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "tests/worker_daemon/support/simulated_accelerator.h"

namespace stagewright::testing {
namespace {

TEST(DeviceFault, MemoryThatWasBrokenStaysAndMemoryThatRanOutDoesNot) {
  constexpr int32_t kIllegalAddress = 700, kUncorrectable = 214, kLaunchFailure = 719;
  for (const int32_t error : {kIllegalAddress, kUncorrectable, kLaunchFailure})
    EXPECT_TRUE(IsSticky(error)) << error;
  constexpr int32_t kSuccess = 0, kInvalidValue = 1, kMemoryAllocation = 2, kNotReady = 600,
                    kLaunchOutOfResources = 701, kUnknown = 999;
  for (const int32_t error :
       {kSuccess, kInvalidValue, kMemoryAllocation, kNotReady, kLaunchOutOfResources, kUnknown})
    EXPECT_FALSE(IsSticky(error)) << error;
}

#ifdef CUDA_ERRORS_HEADER
// What CUDA's own reference says of its errors.
TEST(DeviceFault, AgreesWithTheReferenceOfCuda) {
  std::ifstream file(CUDA_ERRORS_HEADER);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t begin = text.find("enum __device_builtin__ cudaError\n");
  ASSERT_NE(begin, std::string::npos);
  const std::regex entry(R"((cudaError\w*)\s*=\s*(\d+))");
  const std::set<std::string> of_hardware = {"cudaErrorECCUncorrectable",
                                             "cudaErrorNvlinkUncorrectable"};
  size_t comment = begin, errors = 0;
  for (std::sregex_iterator
           it(text.begin() + static_cast<std::ptrdiff_t>(begin), text.end(), entry),
       end;
       it != end; ++it) {
    const size_t at = begin + static_cast<size_t>(it->position());
    const std::string said =
        std::regex_replace(text.substr(comment, at - comment), std::regex(R"([\s*]+)"), " ");
    comment = at;
    const bool stays = said.find("must be terminated and relaunched") != std::string::npos ||
                       of_hardware.contains((*it)[1]);
    EXPECT_EQ(IsSticky(std::stoi((*it)[2])), stays) << (*it)[1];
    ++errors;
  }
  EXPECT_GT(errors, 100u);
}
#endif

TEST(DeviceFault, ADeviceIsAskedWhatItsErrorIs) {
  EXPECT_TRUE(FaultOf("cpu").ok());
  EXPECT_TRUE(FaultOf("simulated:0").ok());
  Break(0, 700);
  const absl::Status fault = FaultOf("simulated:0");
  EXPECT_EQ(fault.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(fault.message(), "simulated:0: simulated error 700");
  EXPECT_TRUE(FaultOf("simulated:1").ok());
  Break(0, 1);
  EXPECT_TRUE(FaultOf("simulated:0").ok());
  Break(0, 0);
}

TEST(DeviceFault, ADeviceThatLibTorchHasNotIsNoFault) { EXPECT_TRUE(FaultOf("cuda:77").ok()); }

}  // namespace
}  // namespace stagewright::testing
