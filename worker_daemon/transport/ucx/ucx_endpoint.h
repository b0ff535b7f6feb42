// The way from this worker to that of one peer, as UCX has it.
#pragma once

#include <ucp/api/ucp.h>

#include <functional>
#include <string>

#include "worker_daemon/transport/ucx/ucx_worker.h"

namespace stagewright {

// Invariant: UCX may call `on_error` as long as its worker lives, also after Close, so this lives
// at least as long.
class UcxEndpoint {
 public:
  UcxEndpoint() = default;
  UcxEndpoint(const UcxEndpoint&) = delete;
  UcxEndpoint& operator=(const UcxEndpoint&) = delete;

  // Call it once. `address` is the UcxWorker::address() of the peer. `on_error` is called from
  // within UCX, in whose hands the endpoint then is: who hears of an error closes it later.
  ucs_status_t Open(const UcxWorker& worker, const std::string& address,
                    std::function<void(ucs_status_t)> on_error);

  // At once: what has not been sent is not sent any more. Takes some progress of the worker.
  void Close();

  bool is_open() const { return endpoint_ != nullptr; }
  ucp_ep_h get() const { return endpoint_; }  // Null unless it is open.

  // Whether UCX reaches the peer over TCP; true if that cannot be found out. REQUIRES: is_open().
  bool over_tcp() const;

 private:
  static void OnError(void* user_data, ucp_ep_h endpoint, ucs_status_t status);

  ucp_ep_h endpoint_ = nullptr;
  std::function<void(ucs_status_t)> on_error_;
};

}  // namespace stagewright
