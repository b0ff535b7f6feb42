#include "worker_daemon/transport/ucx/ucx_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

constexpr int kControlReceives = 4;
constexpr uint32_t kFieldMask = (1u << 20) - 1;
constexpr int kProgressBurst = 64;  // Then look at the rest.

}  // namespace

UcxEngine::UcxEngine(TransportIdentity identity, std::unique_ptr<UcxWorker> worker,
                     std::unique_ptr<LifeLine> life)
    : identity_(std::move(identity)), worker_(std::move(worker)), life_(std::move(life)) {
  for (int i = 0; i < kControlReceives; ++i) {
    control_receives_.push_back(std::make_unique<ControlReceive>());
    control_receives_.back()->engine = this;
    PostControlReceive(*control_receives_.back());
  }
}

UcxEngine::~UcxEngine() = default;

uint64_t UcxEngine::PackTag(int sender, uint32_t traffic, uint32_t channel,
                            uint32_t sequence) const {
  return (identity_.generation & 0xff) << 56 | static_cast<uint64_t>(sender) << 44 |
         static_cast<uint64_t>(traffic) << 40 | static_cast<uint64_t>(channel) << 20 |
         (sequence & kFieldMask);
}

void UcxEngine::Post(UcxOperation operation) {
  const auto edge = edges_.find(operation.peer);
  std::list<Pending>& list = edge == edges_.end() ? finished_ : edge->second.pending;
  Pending& pending = list.emplace_back();
  pending.engine = this;
  pending.operation = std::move(operation);
  pending.list = &list;
  pending.position = std::prev(list.end());

  const UcxOperation& posted = pending.operation;
  if (!abort_status_.ok()) return Finish(pending, abort_status_);
  if (edge == edges_.end()) {
    return Finish(pending,
                  absl::InvalidArgumentError(absl::StrCat(
                      "device ", identity_.device, " is not connected to device ", posted.peer)));
  }
  if (posted.tag.channel > Tag::kMaxChannel) {
    return Finish(pending, absl::InvalidArgumentError(absl::StrCat(
                               "channel ", posted.tag.channel, " is above ", Tag::kMaxChannel)));
  }
  const bool lost = !edge->second.failure.ok();
  if (lost && (posted.is_send || !edge->second.left)) {
    return Finish(pending, edge->second.failure);
  }
  StartTransfer(edge->second, pending);
  // What the peer sent before it left is here already; anything else will not come.
  if (lost && pending.list == &edge->second.pending) {
    ucp_request_cancel(worker_->get(), pending.request);
  }
}

void UcxEngine::StartTransfer(Edge& edge, Pending& pending) {
  const UcxOperation& operation = pending.operation;
  const uint32_t traffic = static_cast<uint32_t>(operation.tag.traffic);
  const uint64_t tag = PackTag(operation.is_send ? identity_.device : edge.device, traffic,
                               operation.tag.channel, operation.tag.sequence);
  ucp_request_param_t param = {};
  // UCX 1.13 does not tell the size of a message that is received at once other than in the
  // callback, hence NO_IMM_CMPL: the callback comes always, perhaps before the call returns.
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.user_data = &pending;
  ucs_status_ptr_t request = nullptr;
  if (operation.is_send) {
    param.cb.send = &OnSent;
    request = ucp_tag_send_nbx(edge.endpoint, operation.data, operation.bytes, tag, &param);
  } else {
    param.cb.recv = &OnReceived;
    request = ucp_tag_recv_nbx(worker_->get(), operation.data, operation.bytes, tag, ~uint64_t{0},
                               &param);
  }
  if (!UCS_PTR_IS_PTR(request)) {
    EndTransfer(pending, UCS_PTR_STATUS(request), operation.bytes);
  } else if (pending.list == &edge.pending) {
    pending.request = request;
  }
}

void UcxEngine::OnSent(void* request, ucs_status_t status, void* user_data) {
  ucp_request_free(request);
  Pending& pending = *static_cast<Pending*>(user_data);
  pending.engine->EndTransfer(pending, status, 0);
}

void UcxEngine::OnReceived(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                           void* user_data) {
  const size_t received = info->length;  // Lives in the request.
  ucp_request_free(request);
  Pending& pending = *static_cast<Pending*>(user_data);
  pending.engine->EndTransfer(pending, status, received);
}

void UcxEngine::EndTransfer(Pending& pending, ucs_status_t status, size_t received) {
  pending.request = nullptr;
  if (pending.list == &abandoned_) {
    abandoned_.erase(pending.position);
    return;
  }
  const UcxOperation& operation = pending.operation;
  const bool truncated = status == UCS_ERR_MESSAGE_TRUNCATED;
  if (!operation.is_send && (truncated || (status == UCS_OK && received != operation.bytes))) {
    return Finish(pending, SizeMismatch(operation.peer, identity_.device, operation.tag, received,
                                        operation.bytes));
  }
  if (status == UCS_OK) return Finish(pending, absl::OkStatus());
  if (!abort_status_.ok()) return Finish(pending, abort_status_);
  const Edge& edge = edges_.at(operation.peer);
  if (!edge.failure.ok()) return Finish(pending, edge.failure);
  if (truncated) {
    return Finish(pending,
                  absl::InvalidArgumentError(absl::StrCat(
                      ToString(operation.tag), ": device ", identity_.device, " sent ",
                      operation.bytes, " bytes, device ", operation.peer, " expected fewer")));
  }
  Finish(pending,
         absl::UnavailableError(absl::StrCat("device ", operation.peer,
                                             ": transfer failed: ", ucs_status_string(status))));
}

void UcxEngine::Finish(Pending& pending, absl::Status result) {
  pending.result = std::move(result);
  finished_.splice(finished_.end(), *pending.list, pending.position);
  pending.list = &finished_;
}

bool UcxEngine::RunDones() {
  if (finished_.empty()) return false;
  std::list<Pending> finished;
  finished.swap(finished_);
  for (Pending& pending : finished) pending.operation.done(std::move(pending.result));
  return true;
}

bool UcxEngine::Progress() {
  if (worker_ == nullptr) return RunDones();
  bool any = false;
  for (int i = 0; i < kProgressBurst && ucp_worker_progress(worker_->get()) != 0; ++i) any = true;
  while (!inbox_.empty()) {
    std::vector<ControlMessage> messages;
    messages.swap(inbox_);
    for (const ControlMessage& message : messages) HandleControl(message);
    any = true;
  }
  while (!to_post_.empty()) {
    ControlReceive* receive = to_post_.back();
    to_post_.pop_back();
    PostControlReceive(*receive);
    any = true;
  }
  // Only once all that the peers had sent has been looked at, as far as that ever ends.
  const absl::Time now = absl::Now();
  if (now >= check_lives_at_ && (!any || now >= check_lives_at_ + kAnswer)) CheckLives();
  if (unsettled_) any |= SettleAll();
  if (MayEnd()) {
    End();
    any = true;
  }
  any |= RunDones();
  return any;
}

bool UcxEngine::Arm() {
  // UCS_ERR_BUSY: something arrived meanwhile.
  return worker_ == nullptr || ucp_worker_arm(worker_->get()) == UCS_OK;
}

std::vector<int> UcxEngine::wake_fds() const {
  std::vector<int> fds;
  if (worker_ != nullptr) fds.push_back(worker_->event_fd());
  for (const auto& [device, edge] : edges_) {
    if (edge.process != nullptr && edge.process->fd() >= 0) fds.push_back(edge.process->fd());
    if (edge.life != nullptr && edge.life->fd() >= 0) fds.push_back(edge.life->fd());
  }
  return fds;
}

}  // namespace stagewright
