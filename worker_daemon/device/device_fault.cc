#include "worker_daemon/device/device_fault.h"

#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

// By number: builds without CUDA have no names for them.
constexpr std::array<int32_t, 15> kSticky = {
    214,  // cudaErrorECCUncorrectable
    220,  // cudaErrorNvlinkUncorrectable
    226,  // cudaErrorContained
    700,  // cudaErrorIllegalAddress
    702,  // cudaErrorLaunchTimeout
    710,  // cudaErrorAssert
    714,  // cudaErrorHardwareStackError
    715,  // cudaErrorIllegalInstruction
    716,  // cudaErrorMisalignedAddress
    717,  // cudaErrorInvalidAddressSpace
    718,  // cudaErrorInvalidPc
    719,  // cudaErrorLaunchFailure
    721,  // cudaErrorTensorMemoryLeak
    810,  // cudaErrorMpsClientTerminated
    911,  // cudaErrorExternalDevice
};

// LibTorch adds advice for people who debug their own kernels.
std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

bool IsSticky(int32_t cuda_error) {
  return std::find(kSticky.begin(), kSticky.end(), cuda_error) != kSticky.end();
}

absl::Status FaultOf(const std::string& torch_device) {
  try {
    const c10::Device device(torch_device);
    if (device.is_cpu()) return absl::OkStatus();
    const c10::impl::VirtualGuardImpl guard(device.type());
    static_cast<void>(guard.queryStream(guard.getDefaultStream(device)));
  } catch (const c10::AcceleratorError& error) {
    if (IsSticky(error.get_error_code())) {
      return absl::FailedPreconditionError(
          absl::StrCat(torch_device, ": ", FirstLine(error.what_without_backtrace())));
    }
  } catch (const c10::Error&) {  // No fault of the device: such as one that LibTorch has not.
  }
  return absl::OkStatus();
}

}  // namespace stagewright
