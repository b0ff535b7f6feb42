// The accelerator that a test program runs on: each links one of the sources that define this.
#pragma once

#include <string>

#include "common/base/status.h"
#include "tests/worker_daemon/support/transports/transport_factory.h"

namespace stagewright::testing {

// What LibTorch calls the n-th accelerator; numbers may go round. FAILED_PRECONDITION, with the
// reason, if there is none.
absl::StatusOr<std::string> TestedAccelerator(int n);

// Transports between the devices of a job in this process, up to four, of which device n is on
// TestedAccelerator(n): they take the memory of these as it is, past the host. FAILED_PRECONDITION,
// with the reason, if there are none.
absl::StatusOr<TransportFactory> TestedMemoryTransports();

}  // namespace stagewright::testing
