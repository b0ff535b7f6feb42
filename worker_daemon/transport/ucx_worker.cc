#include "worker_daemon/transport/ucx_worker.h"

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace stagewright {
namespace {

struct Setting {
  const char* name;  // Without "UCX_".
  const char* value;
};

// Cross-memory attach needs ptrace rights over the peer, which containers do not have, and is no
// faster than a copy through a shared ring. SysV segments outlive a killed process.
constexpr char kTls[] = "^cma,sysv";

// What we need different from UCX's own defaults; the environment has the last word.
constexpr Setting kDefaults[] = {
    // Without it shared memory refuses endpoints that report a peer's death.
    {"MM_ERROR_HANDLING", "y"},
    // How soon a dead peer is noticed where no connection breaks (shared memory).
    {"KEEPALIVE_INTERVAL", "1s"},
    // A process has few peers, and a daemon must see all of them.
    {"KEEPALIVE_NUM_EPS", "4096"},
};

// The same, but UCX warns of them where TCP is not in use.
constexpr Setting kTcpDefaults[] = {
    // Else large messages inside a node go over a TCP "put", five times slower than the ring.
    {"TCP_PUT_ENABLE", "n"},
    // How soon an idle connection notices that the other host is gone.
    {"TCP_KEEPIDLE", "2s"},
    {"TCP_KEEPINTVL", "1s"},
    {"TCP_KEEPCNT", "3"},
};

bool IsSet(const Setting& setting) {
  return std::getenv(absl::StrCat("UCX_", setting.name).c_str()) != nullptr;
}

bool UsesTcp(absl::string_view tls) {
  const bool named = absl::StrContains(tls, "tcp");
  return absl::StartsWith(tls, "^") ? !named : named || absl::StrContains(tls, "all");
}

absl::Status Modify(ucp_config_t* config, const Setting& setting) {
  const ucs_status_t status = ucp_config_modify(config, setting.name, setting.value);
  if (status == UCS_OK) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("UCX setting ", setting.name, "=", setting.value,
                                                 ": ", ucs_status_string(status)));
}

absl::Status Configure(const UcxOptions& options, ucp_config_t* config) {
  std::string tls = options.tls;
  if (const char* set = std::getenv("UCX_TLS"); tls.empty()) tls = set ? set : kTls;
  RETURN_IF_ERROR(Modify(config, {"TLS", tls.c_str()}));
  for (const Setting& setting : kDefaults) {
    if (!IsSet(setting)) RETURN_IF_ERROR(Modify(config, setting));
  }
  if (!UsesTcp(tls)) return absl::OkStatus();
  for (const Setting& setting : kTcpDefaults) {
    if (!IsSet(setting)) RETURN_IF_ERROR(Modify(config, setting));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status UcxError(absl::string_view what, ucs_status_t status) {
  return absl::InternalError(absl::StrCat(what, ": ", ucs_status_string(status)));
}

absl::StatusOr<std::unique_ptr<UcxWorker>> UcxWorker::Create(const UcxOptions& options) {
  std::unique_ptr<UcxWorker> worker(new UcxWorker);
  RETURN_IF_ERROR(worker->Initialize(options));
  return worker;
}

absl::Status UcxWorker::Initialize(const UcxOptions& options) {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return UcxError("reading the UCX configuration", status);
  absl::Status configured = Configure(options, config);
  if (configured.ok()) {
    ucp_params_t params = {};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
    status = ucp_init(&params, config, &context_);
    if (status != UCS_OK) configured = UcxError("initializing UCX", status);
  }
  ucp_config_release(config);
  RETURN_IF_ERROR(configured);

  ucp_worker_params_t params = {};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  params.events = UCP_WAKEUP_TAG_SEND | UCP_WAKEUP_TAG_RECV | UCP_WAKEUP_TX | UCP_WAKEUP_RX;
  status = ucp_worker_create(context_, &params, &worker_);
  if (status != UCS_OK) return UcxError("creating a UCX worker", status);

  status = ucp_worker_get_efd(worker_, &event_fd_);
  if (status != UCS_OK) return UcxError("getting the events of a UCX worker", status);

  ucp_address_t* address = nullptr;
  size_t length = 0;
  status = ucp_worker_get_address(worker_, &address, &length);
  if (status != UCS_OK) return UcxError("getting the address of a UCX worker", status);
  address_.assign(reinterpret_cast<const char*>(address), length);
  ucp_worker_release_address(worker_, address);
  return absl::OkStatus();
}

UcxWorker::~UcxWorker() {
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

}  // namespace stagewright
