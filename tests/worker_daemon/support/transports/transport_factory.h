// What makes the transports of a job's devices.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "worker_daemon/transport/identity.h"
#include "worker_daemon/transport/local/local_transport.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright::testing {

using TransportFactory =
    std::function<absl::StatusOr<std::unique_ptr<Transport>>(const TransportIdentity&)>;

inline absl::StatusOr<std::unique_ptr<Transport>> MakeLocalTransport(
    const TransportIdentity& identity) {
  return LocalTransport::Create(identity);
}

}  // namespace stagewright::testing
