#include "worker_daemon/transport/ucx/ucx_worker.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "common/base/status.h"
#include "worker_daemon/transport/shared_memory.h"

namespace stagewright {
namespace {

struct Setting {
  const char* variable;  // In the environment, which has the last word.
  const char* key;       // For ucp_config_modify.
  const char* value;
};

// Cross-memory attach needs ptrace rights over the peer, which containers do not have, and is no
// faster than a copy through a shared ring. SysV segments outlive a killed process.
constexpr char kTls[] = "^cma,sysv";

// What we need different from UCX's own defaults.
constexpr Setting kDefaults[] = {
    // How soon a dead peer is noticed where no connection breaks (shared memory).
    {"UCX_KEEPALIVE_INTERVAL", "KEEPALIVE_INTERVAL", "1s"},
    // A process has few peers, and must notice the loss of any.
    {"UCX_KEEPALIVE_NUM_EPS", "KEEPALIVE_NUM_EPS", "4096"},
    // Smaller messages leave at once, copied by whoever sends them: agreeing on a way first takes
    // longer where both ends compute.
    {"UCX_RNDV_THRESH", "RNDV_THRESH", "256k"},
};

// What a worker takes at first, 4.1 MiB with UCX's own settings, and some to spare.
constexpr Bytes kSharedMemoryOfWorker = 8 << 20;

// UCX warns of settings of transports that are not in use, hence the groups. UCX 1.13 knows the
// options of TCP by their names without prefix here.
constexpr Setting kSharedMemoryDefaults[] = {
    // Without it shared memory refuses endpoints that report a peer's death.
    {"UCX_MM_ERROR_HANDLING", "MM_ERROR_HANDLING", "y"},
};
constexpr Setting kTcpDefaults[] = {
    // Without it large messages inside a node go over a TCP "put", five times slower than the ring.
    {"UCX_TCP_PUT_ENABLE", "PUT_ENABLE", "n"},
    // Sends copy their data, in large pieces. UCX 1.13 completes a send from the user's memory
    // twice, and stops the process for it, when the connection breaks in its middle.
    {"UCX_ZCOPY_THRESH", "ZCOPY_THRESH", "inf"},
    {"UCX_TCP_TX_SEG_SIZE", "TX_SEG_SIZE", "64k"},
    // How soon an idle connection notices that the other host is gone.
    {"UCX_TCP_KEEPIDLE", "KEEPIDLE", "2s"},
    {"UCX_TCP_KEEPINTVL", "KEEPINTVL", "1s"},
    {"UCX_TCP_KEEPCNT", "KEEPCNT", "3"},
};

// Whether the list `tls`, as UCX_TLS has it, lets any of `names` be used.
bool Uses(absl::string_view tls, std::initializer_list<absl::string_view> names) {
  const bool negated = absl::ConsumePrefix(&tls, "^");
  const std::set<absl::string_view> listed = absl::StrSplit(tls, ',');
  if (!negated && listed.contains("all")) return true;
  return std::any_of(names.begin(), names.end(),
                     [&](absl::string_view name) { return listed.contains(name) != negated; });
}

absl::Status Modify(ucp_config_t* config, const char* key, const char* value) {
  const ucs_status_t status = ucp_config_modify(config, key, value);
  if (status == UCS_OK) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("UCX setting ", key, "=", value, ": ", ucs_status_string(status)));
}

absl::Status Apply(absl::Span<const Setting> settings, ucp_config_t* config) {
  for (const Setting& setting : settings) {
    if (std::getenv(setting.variable) != nullptr) continue;
    RETURN_IF_ERROR(Modify(config, setting.key, setting.value));
  }
  return absl::OkStatus();
}

std::string TlsOf(const UcxOptions& options) {
  const char* set = std::getenv("UCX_TLS");
  return !options.tls.empty() ? options.tls : set != nullptr ? set : kTls;
}

absl::Status Configure(const std::string& tls, ucp_config_t* config) {
  RETURN_IF_ERROR(Modify(config, "TLS", tls.c_str()));
  RETURN_IF_ERROR(Apply(kDefaults, config));
  if (Uses(tls, {"posix", "sm", "shm", "mm", "sysv", "xpmem"})) {
    RETURN_IF_ERROR(Apply(kSharedMemoryDefaults, config));
  }
  if (Uses(tls, {"tcp"})) RETURN_IF_ERROR(Apply(kTcpDefaults, config));
  return absl::OkStatus();
}

// UCX says no more than that there are no resources.
absl::Status NoWorker(const std::string& tls, ucs_status_t status) {
  const absl::Status error = UcxError("creating a UCX worker", status);
  if (!Uses(tls, {"posix", "sm", "shm", "mm"})) return error;
  return NamingFullSharedMemory(error, kSharedMemoryOfWorker, SharedMemoryOfUcx());
}

// Takes the messages that nobody asked for: UCX warns of each that it is left with.
void DropUnmatched(ucp_worker_h worker) {
  ucp_tag_recv_info_t info;
  while (ucp_tag_message_h message = ucp_tag_probe_nb(worker, 0, 0, 1, &info)) {
    const ucp_request_param_t param = {};
    ucs_status_ptr_t request = ucp_tag_msg_recv_nbx(worker, nullptr, 0, message, &param);
    if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  }
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
  const std::string tls = TlsOf(options);
  absl::Status configured = Configure(tls, config);
  if (configured.ok()) {
    ucp_params_t params = {};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
    status = ucp_init(&params, config, &context_);
    if (status != UCS_OK) configured = UcxError("initializing UCX", status);
  }
  ucp_config_release(config);
  RETURN_IF_ERROR(configured);

  const auto listened = TcpDoor::Listening();
  ucp_worker_params_t params = {};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS |
                      UCP_WORKER_PARAM_FIELD_FLAGS;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  params.flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK;  // Aborting leaves requests behind.
  params.events = UCP_WAKEUP_TAG_SEND | UCP_WAKEUP_TAG_RECV | UCP_WAKEUP_TX | UCP_WAKEUP_RX;
  status = ucp_worker_create(context_, &params, &worker_);
  if (status != UCS_OK) return NoWorker(tls, status);

  status = ucp_worker_get_efd(worker_, &event_fd_);
  if (status != UCS_OK) return UcxError("getting the events of a UCX worker", status);

  ucp_address_t* address = nullptr;
  size_t length = 0;
  status = ucp_worker_get_address(worker_, &address, &length);
  if (status != UCS_OK) return UcxError("getting the address of a UCX worker", status);
  address_.assign(reinterpret_cast<const char*>(address), length);
  ucp_worker_release_address(worker_, address);
  door_ = TcpDoor(listened, address_);
  return absl::OkStatus();
}

UcxWorker::~UcxWorker() {
  if (worker_ != nullptr) {
    DropUnmatched(worker_);
    ucp_worker_destroy(worker_);
  }
  if (context_ != nullptr) ucp_cleanup(context_);
}

}  // namespace stagewright
