#include "worker_daemon/transport/ucx/ucx_control_line.h"

#include <iterator>
#include <utility>

#include "common/log/log.h"
#include "worker_daemon/transport/ucx/ucx_tag.h"

namespace stagewright {
namespace {

constexpr int kReceives = 4;

}  // namespace

struct UcxControlLine::Outgoing {
  UcxControlLine* line = nullptr;
  std::string text;
  std::function<void()> sent;
  std::list<Outgoing>::iterator position;

  void End() {
    const std::function<void()> then = std::move(sent);
    line->outgoing_.erase(position);  // Ends this object.
    then();
  }
};

struct UcxControlLine::Receive {
  UcxControlLine* line = nullptr;
  bool posted = false;      // It is with UCX.
  void* request = nullptr;  // By which UCX knows it then.
  char bytes[kMaxText + GenerationKey::kBytes];
};

UcxControlLine::UcxControlLine(const TransportIdentity& identity, const GenerationKey* key,
                               UcxWorker* worker)
    : identity_(identity), key_(key), worker_(worker) {
  for (int i = 0; i < kReceives; ++i) {
    receives_.push_back(std::make_unique<Receive>());
    receives_.back()->line = this;
    Post(*receives_.back());
  }
}

UcxControlLine::~UcxControlLine() = default;

void UcxControlLine::Send(ucp_ep_h endpoint, int to, UcxControl type, absl::string_view text,
                          std::function<void()> sent) {
  Outgoing& outgoing = outgoing_.emplace_back();
  outgoing.line = this;
  outgoing.text = key_->Seal(to, static_cast<uint32_t>(type), text.substr(0, kMaxText));
  outgoing.sent = std::move(sent);
  outgoing.position = std::prev(outgoing_.end());
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &OnSent;
  param.user_data = &outgoing;
  const uint64_t tag = PackUcxTag({.generation = identity_.generation,
                                   .sender = identity_.device,
                                   .traffic = kUcxControlTraffic,
                                   .channel = static_cast<uint32_t>(type)});
  ucs_status_ptr_t request =
      ucp_tag_send_nbx(endpoint, outgoing.text.data(), outgoing.text.size(), tag, &param);
  if (!UCS_PTR_IS_PTR(request)) outgoing.End();
}

void UcxControlLine::OnSent(void* request, ucs_status_t, void* user_data) {
  ucp_request_free(request);
  static_cast<Outgoing*>(user_data)->End();
}

std::vector<UcxControlMessage> UcxControlLine::Take() { return std::exchange(arrived_, {}); }

void UcxControlLine::Refuse(int claimed) {
  if (std::exchange(refused_, true)) return;
  Log(LogLevel::kWarning,
      "passed over a message of somebody who does not prove the job's key; more are not told",
      {{"job", identity_.job},
       {"generation", identity_.generation},
       {"device", identity_.device},
       {"claimed_device", claimed}});
}

bool UcxControlLine::Listen() {
  const bool any = !to_post_.empty();
  while (!to_post_.empty()) {
    Receive& receive = *to_post_.back();
    to_post_.pop_back();
    Post(receive);
  }
  return any;
}

// With NO_IMM_CMPL a message that is here already comes through the callback, too, perhaps before
// the call returns; the request that it returns has ended then.
void UcxControlLine::Post(Receive& receive) {
  ucp_request_param_t param = {};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv = &OnReceived;
  param.user_data = &receive;
  const uint64_t tag =
      PackUcxTag({.generation = identity_.generation, .traffic = kUcxControlTraffic});
  receive.posted = true;
  ucs_status_ptr_t request = ucp_tag_recv_nbx(worker_->get(), receive.bytes, sizeof(receive.bytes),
                                              tag, UcxControlMask(), &param);
  if (!UCS_PTR_IS_PTR(request)) receive.posted = false;
  receive.request = receive.posted ? request : nullptr;
}

void UcxControlLine::OnReceived(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                                void* user_data) {
  const ucp_tag_recv_info_t received = *info;  // Lives in the request.
  ucp_request_free(request);
  Receive& receive = *static_cast<Receive*>(user_data);
  receive.request = nullptr;
  receive.posted = false;
  if (status == UCS_ERR_CANCELED) return;  // StopListening.
  UcxControlLine& line = *receive.line;
  if (status == UCS_OK) {
    const UcxTag tag = UnpackUcxTag(received.sender_tag);
    std::optional<std::string> text =
        line.key_->Open(tag.sender, tag.channel, {receive.bytes, received.length});
    if (text.has_value()) {
      line.arrived_.push_back({tag.sender, static_cast<UcxControl>(tag.channel), *std::move(text)});
    } else {
      line.Refuse(tag.sender);
    }
  }
  line.to_post_.push_back(&receive);
}

void UcxControlLine::StopListening() {
  for (const std::unique_ptr<Receive>& receive : receives_) {
    if (receive->request != nullptr) ucp_request_cancel(worker_->get(), receive->request);
  }
}

}  // namespace stagewright
