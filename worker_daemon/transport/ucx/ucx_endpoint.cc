#include "worker_daemon/transport/ucx/ucx_endpoint.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace stagewright {

ucs_status_t UcxEndpoint::Open(const UcxWorker& worker, const std::string& address,
                               std::function<void(ucs_status_t)> on_error) {
  on_error_ = std::move(on_error);
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &OnError;
  params.err_handler.arg = this;
  const ucs_status_t status = ucp_ep_create(worker.get(), &params, &endpoint_);
  if (status != UCS_OK) endpoint_ = nullptr;
  return status;
}

void UcxEndpoint::OnError(void* user_data, ucp_ep_h, ucs_status_t status) {
  static_cast<UcxEndpoint*>(user_data)->on_error_(status);
}

void UcxEndpoint::Close() {
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  ucp_ep_close_nbx(endpoint_, &param);  // Forced, it needs no request.
  endpoint_ = nullptr;
}

// UCX 1.13 tells it only in the endpoint's description, which has a line "lane[0]: 2:tcp/eth0.0
// ..." for each way.
bool UcxEndpoint::over_tcp() const {
  char* text = nullptr;
  size_t length = 0;
  FILE* stream = open_memstream(&text, &length);
  if (stream == nullptr) return true;  // The careful answer.
  ucp_ep_print_info(endpoint_, stream);
  std::fclose(stream);
  const bool over_tcp = absl::StrContains(absl::string_view(text, length), ":tcp/");
  std::free(text);
  return over_tcp;
}

}  // namespace stagewright
