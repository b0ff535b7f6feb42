// Owns the UCX objects of one transport: a context with our defaults and a worker.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_daemon/transport/tcp_door.h"
#include "worker_daemon/transport/ucx/ucx_options.h"

namespace stagewright {

class UcxWorker {
 public:
  // Errors: INTERNAL with what UCX says, or UNAVAILABLE as NamingFullSharedMemory
  // (shared_memory.h); INVALID_ARGUMENT for unusable `options.tls`.
  static absl::StatusOr<std::unique_ptr<UcxWorker>> Create(const UcxOptions& options);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  ucp_worker_h get() const { return worker_; }
  const std::string& address() const { return address_; }
  int event_fd() const { return event_fd_; }
  // For peers that connect over TCP; open at first.
  const TcpDoor& door() const { return door_; }

 private:
  UcxWorker() = default;
  absl::Status Initialize(const UcxOptions& options);

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::string address_;
  int event_fd_ = -1;
  TcpDoor door_;
};

// INTERNAL "`what`: <UCX's text>".
absl::Status UcxError(absl::string_view what, ucs_status_t status);

}  // namespace stagewright
