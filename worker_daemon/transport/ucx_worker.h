// Owns the UCX objects of one transport: a context with our defaults and a worker.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace stagewright {

struct UcxOptions {
  // UCX's transports, as for the environment variable UCX_TLS: "posix,self", "tcp". Empty: what
  // UCX_TLS says, and if it is not set, everything but those that fail in containers.
  std::string tls;
  // How long a progress thread with nothing to do polls before it sleeps. Waking it costs tens of
  // microseconds; polling takes a core.
  absl::Duration spin = absl::Microseconds(50);
};

class UcxWorker {
 public:
  // Errors: INTERNAL with what UCX says; INVALID_ARGUMENT for unusable `options.tls`.
  static absl::StatusOr<std::unique_ptr<UcxWorker>> Create(const UcxOptions& options);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  ucp_worker_h get() const { return worker_; }
  const std::string& address() const { return address_; }
  int event_fd() const { return event_fd_; }

 private:
  UcxWorker() = default;
  absl::Status Initialize(const UcxOptions& options);

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::string address_;
  int event_fd_ = -1;
};

// INTERNAL "`what`: <UCX's text>".
absl::Status UcxError(absl::string_view what, ucs_status_t status);

}  // namespace stagewright
