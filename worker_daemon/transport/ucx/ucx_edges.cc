// The part of UcxEngine that connects, loses and leaves peers.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker_daemon/transport/ucx/ucx_engine.h"

namespace stagewright {
namespace {

constexpr absl::Duration kAnswerOut = absl::Milliseconds(100);

// Whether UCX reaches the peer over TCP. UCX 1.13 tells it only in the endpoint's description,
// which has a line "lane[0]: 2:tcp/eth0.0 ..." for each way.
bool IsOverTcp(ucp_ep_h endpoint) {
  char* text = nullptr;
  size_t length = 0;
  FILE* stream = open_memstream(&text, &length);
  if (stream == nullptr) return true;  // The careful answer.
  ucp_ep_print_info(endpoint, stream);
  std::fclose(stream);
  const bool over_tcp = absl::StrContains(absl::string_view(text, length), ":tcp/");
  std::free(text);
  return over_tcp;
}

}  // namespace

void UcxEngine::Connect(const std::map<int, PeerAddress>& peers, EdgeReport report) {
  report_ = std::move(report);
  for (const auto& [device, address] : peers) {
    Edge& edge = edges_[device];
    edge.engine = this;
    edge.device = device;
    if (!abort_status_.ok()) {
      FailEdge(edge, abort_status_);
    } else if (const auto bye = early_byes_.find(device); bye != early_byes_.end()) {
      FailEdge(edge,
               absl::UnavailableError(absl::StrCat("device ", device, " has gone: ", bye->second)));
    } else {
      edge.greeted = early_hellos_.contains(device);
      OpenEdge(edge, address);
    }
  }
}

void UcxEngine::OpenEdge(Edge& edge, const PeerAddress& address) {
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.worker.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &OnEndpointError;
  params.err_handler.arg = &edge;
  const ucs_status_t status = ucp_ep_create(worker_->get(), &params, &edge.endpoint);
  if (status != UCS_OK) {
    edge.endpoint = nullptr;
    return FailEdge(
        edge, absl::UnavailableError(absl::StrCat(
                  "device ", edge.device, " cannot be reached: ", ucs_status_string(status))));
  }
  edge.process = ProcessWatch::Open(address.process);
  edge.life = LifeWatch::Open(address.life);
  SendControl(edge, Control::kHello, "");
  if (edge.greeted) SendControl(edge, Control::kHelloAnswer, "");
}

void UcxEngine::ReportIfReady(Edge& edge) {
  if (edge.reported || !edge.answered || !edge.greeted) return;
  edge.reported = true;
  report_(edge.device, absl::OkStatus());
}

void UcxEngine::SendControl(Edge& edge, Control type, absl::string_view text) {
  ControlSend& send = control_sends_.emplace_back();
  send.edge = &edge;
  send.type = type;
  send.text = std::string(text.substr(0, ControlReceive::kBytes));
  send.position = std::prev(control_sends_.end());
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &OnControlSent;
  param.user_data = &send;
  const uint64_t tag = PackTag(identity_.device, kControlTraffic, static_cast<uint32_t>(type), 0);
  ucs_status_ptr_t request =
      ucp_tag_send_nbx(edge.endpoint, send.text.data(), send.text.size(), tag, &param);
  if (!UCS_PTR_IS_PTR(request)) EndControlSend(send);
}

void UcxEngine::OnControlSent(void* request, ucs_status_t, void* user_data) {
  ucp_request_free(request);
  ControlSend& send = *static_cast<ControlSend*>(user_data);
  send.edge->engine->EndControlSend(send);
}

void UcxEngine::EndControlSend(ControlSend& send) {
  if (send.type == Control::kByeAnswer) {
    send.edge->close_at = absl::InfinitePast();
    unsettled_ = true;
  }
  control_sends_.erase(send.position);
}

void UcxEngine::PostControlReceive(ControlReceive& receive) {
  ucp_request_param_t param = {};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv = &OnControlReceived;
  param.user_data = &receive;
  const uint64_t tag = PackTag(0, kControlTraffic, 0, 0);
  const uint64_t mask = uint64_t{0xff} << 56 | uint64_t{0xf} << 40;
  receive.posted = true;
  ucs_status_ptr_t request =
      ucp_tag_recv_nbx(worker_->get(), receive.bytes, ControlReceive::kBytes, tag, mask, &param);
  if (!UCS_PTR_IS_PTR(request)) receive.posted = false;
  receive.request = receive.posted ? request : nullptr;
}

void UcxEngine::OnControlReceived(void* request, ucs_status_t status,
                                  const ucp_tag_recv_info_t* info, void* user_data) {
  const ucp_tag_recv_info_t received = *info;  // Lives in the request.
  ucp_request_free(request);
  ControlReceive& receive = *static_cast<ControlReceive*>(user_data);
  receive.engine->EndControlReceive(receive, status, received);
}

void UcxEngine::EndControlReceive(ControlReceive& receive, ucs_status_t status,
                                  const ucp_tag_recv_info_t& info) {
  receive.request = nullptr;
  receive.posted = false;
  if (status == UCS_ERR_CANCELED) return;  // End.
  if (status == UCS_OK) {
    inbox_.push_back({static_cast<int>(info.sender_tag >> 44 & 0xfff),
                      static_cast<Control>(info.sender_tag >> 20 & 0xfffff),
                      std::string(receive.bytes, info.length)});
  }
  to_post_.push_back(&receive);
}

void UcxEngine::HandleControl(const ControlMessage& message) {
  const auto found = edges_.find(message.from);
  if (found == edges_.end()) {
    if (message.type == Control::kHello) early_hellos_.insert(message.from);
    if (message.type == Control::kBye) early_byes_[message.from] = message.text;
    return;
  }
  Edge& edge = found->second;
  switch (message.type) {
    case Control::kHello:
      if (edge.greeted || !edge.failure.ok()) return;
      edge.greeted = true;
      SendControl(edge, Control::kHelloAnswer, "");
      return ReportIfReady(edge);
    case Control::kHelloAnswer:
      edge.answered = true;
      return ReportIfReady(edge);
    case Control::kBye:
      return HandleBye(edge, message.text);
    case Control::kByeAnswer:
      edge.close_at = absl::InfinitePast();
      unsettled_ = true;
  }
}

void UcxEngine::HandleBye(Edge& edge, const std::string& reason) {
  if (edge.endpoint == nullptr || edge.left) return;
  edge.left = true;
  unsettled_ = true;
  // If both leave, the peer still waits for the bye that is queued here.
  edge.close_at = abort_status_.ok() ? absl::Now() + kAnswerOut : end_by_;
  if (edge.failure.ok()) {
    FailEdge(edge,
             absl::UnavailableError(absl::StrCat("device ", edge.device, " has gone: ", reason)));
  }
  SendControl(edge, Control::kByeAnswer, "");
}

void UcxEngine::OnEndpointError(void* user_data, ucp_ep_h, ucs_status_t status) {
  Edge& edge = *static_cast<Edge*>(user_data);
  edge.error = status;
  edge.engine->unsettled_ = true;
}

void UcxEngine::CheckLives() {
  check_lives_at_ = absl::Now() + kWatch;
  for (auto& [device, edge] : edges_) {
    if (edge.process != nullptr && edge.process->Ended()) {
      edge.process.reset();
      HandleEnd(edge, "its process ended");
    }
    if (edge.life != nullptr && edge.life->Ended()) {
      edge.life.reset();
      HandleEnd(edge, "its transport ended");
    }
  }
}

// No operation with the peer can end well any more, whatever UCX thinks of the endpoint.
void UcxEngine::HandleEnd(Edge& edge, absl::string_view what) {
  if (edge.failure.ok()) {
    FailEdge(edge,
             absl::UnavailableError(absl::StrCat("device ", edge.device, " has gone: ", what)));
  }
  edge.close_at = absl::InfinitePast();
  unsettled_ = true;
}

void UcxEngine::FailEdge(Edge& edge, const absl::Status& failure) {
  edge.failure = failure;
  CancelReceives(edge);
  if (edge.reported) return;
  edge.reported = true;
  report_(edge.device, failure);
}

// Ends those that nothing has arrived for; the others end by themselves, or are abandoned.
void UcxEngine::CancelReceives(Edge& edge) {
  std::vector<void*> requests;
  for (const Pending& pending : edge.pending) {
    if (!pending.operation.is_send) requests.push_back(pending.request);
  }
  for (void* request : requests) ucp_request_cancel(worker_->get(), request);
}

void UcxEngine::Abort(const absl::Status& status) {
  if (!abort_status_.ok()) return;
  abort_status_ = status;
  end_by_ = absl::Now() + kAnswer;
  unsettled_ = true;
  for (auto& [device, edge] : edges_) {
    if (edge.endpoint == nullptr || edge.left) continue;
    CancelReceives(edge);
    if (!edge.error.has_value()) SendControl(edge, Control::kBye, status.message());
    if (edge.reported) continue;
    edge.reported = true;
    report_(device, status);
  }
}

void UcxEngine::CloseEndpoint(Edge& edge) {
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  ucp_ep_close_nbx(edge.endpoint, &param);  // Forced, it needs no request.
  edge.endpoint = nullptr;
  edge.close_at.reset();
  edge.abandon_at = absl::Now() + kDrain;
}

bool UcxEngine::Settle(Edge& edge, absl::Time now) {
  bool any = false;
  if (edge.error.has_value()) {
    const ucs_status_t error = *std::exchange(edge.error, std::nullopt);
    any = true;
    if (edge.failure.ok()) {
      FailEdge(edge, absl::UnavailableError(absl::StrCat(
                         "device ", edge.device, ": connection lost: ", ucs_status_string(error))));
    }
    if (edge.endpoint != nullptr) CloseEndpoint(edge);
  }
  if (edge.endpoint != nullptr && edge.close_at.has_value() && *edge.close_at <= now) {
    edge.close_at.reset();
    edge.parted = true;
    if (!IsOverTcp(edge.endpoint)) CloseEndpoint(edge);
    any = true;
  }
  if (edge.abandon_at.has_value() && (edge.pending.empty() || *edge.abandon_at <= now)) {
    edge.abandon_at.reset();
    while (!edge.pending.empty()) {
      Pending& pending = edge.pending.front();
      Pending& notice = finished_.emplace_back();
      notice.operation.done = std::move(pending.operation.done);
      notice.result = abort_status_.ok() ? edge.failure : abort_status_;
      pending.list = &abandoned_;
      abandoned_.splice(abandoned_.end(), edge.pending, pending.position);
    }
    any = true;
  }
  return any;
}

bool UcxEngine::SettleAll() {
  const absl::Time now = absl::Now();
  bool any = false;
  unsettled_ = false;
  for (auto& [device, edge] : edges_) {
    any |= Settle(edge, now);
    unsettled_ |= edge.error.has_value() || edge.abandon_at.has_value() ||
                  (edge.endpoint != nullptr && edge.close_at.has_value());
  }
  return any;
}

absl::Time UcxEngine::next_timer() const {
  absl::Time next = end_by_;
  if (!unsettled_) return next;
  for (const auto& [device, edge] : edges_) {
    if (edge.error.has_value()) return absl::InfinitePast();
    if (edge.endpoint != nullptr && edge.close_at.has_value()) {
      next = std::min(next, *edge.close_at);
    }
    if (edge.abandon_at.has_value()) next = std::min(next, *edge.abandon_at);
  }
  return next;
}

// Closing an endpoint takes progress, hence the second look.
bool UcxEngine::MayEnd() {
  if (abort_status_.ok()) return false;
  const bool alone = std::all_of(edges_.begin(), edges_.end(), [](const auto& edge) {
    return edge.second.endpoint == nullptr || edge.second.parted;
  });
  return (std::exchange(alone_, alone) && alone) || absl::Now() >= end_by_;
}

// Closes everything and, without any progress in between, destroys the worker.
void UcxEngine::End() {
  for (auto& [device, edge] : edges_) {
    if (edge.endpoint != nullptr) CloseEndpoint(edge);
  }
  for (const std::unique_ptr<ControlReceive>& receive : control_receives_) {
    if (receive->request != nullptr) ucp_request_cancel(worker_->get(), receive->request);
  }
  DropUnmatched();
  worker_.reset();
  life_.reset();

  for (auto& [device, edge] : edges_) {
    edge.error.reset();
    edge.close_at.reset();
    edge.abandon_at.reset();
    edge.process.reset();
    edge.life.reset();
    while (!edge.pending.empty()) Finish(edge.pending.front(), abort_status_);
  }
  abandoned_.clear();
  control_sends_.clear();
  inbox_.clear();
  to_post_.clear();
  unsettled_ = false;
  end_by_ = absl::InfiniteFuture();
}

// Takes the messages that nobody asked for: UCX warns of each that it is left with.
void UcxEngine::DropUnmatched() {
  ucp_tag_recv_info_t info;
  while (ucp_tag_message_h message = ucp_tag_probe_nb(worker_->get(), 0, 0, 1, &info)) {
    const ucp_request_param_t param = {};
    ucs_status_ptr_t request = ucp_tag_msg_recv_nbx(worker_->get(), nullptr, 0, message, &param);
    if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  }
}

}  // namespace stagewright
