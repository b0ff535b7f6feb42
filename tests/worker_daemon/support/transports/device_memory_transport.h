// A transport that tests count on to take the memory of accelerators as it is.
#pragma once

#include <memory>

#include "worker_daemon/transport/transport.h"

namespace stagewright::testing {

// `whole`, whose Connect fails with INTERNAL where it has no way for device memory among all that
// it connects: through host memory the same would come out, and nobody would know.
std::unique_ptr<Transport> RequireDeviceMemory(std::unique_ptr<Transport> whole);

}  // namespace stagewright::testing
