#include "worker_daemon/torch/current_stream.h"

#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace stagewright {

void* CurrentStream(const std::string& torch_device) {
  const c10::Device device(torch_device);
  const c10::impl::VirtualGuardImpl guard(device.type());
  return guard.getStreamNativeHandle(guard.getStream(device));
}

}  // namespace stagewright
