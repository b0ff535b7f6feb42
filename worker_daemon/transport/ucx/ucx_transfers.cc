#include "worker_daemon/transport/ucx/ucx_transfers.h"

#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker_daemon/transport/ucx/ucx_tag.h"

namespace stagewright {
namespace {

// UCX 1.13 does not tell the size of a message that is received at once other than in the callback,
// hence NO_IMM_CMPL: the callback comes always, perhaps before the call returns.
ucp_request_param_t ParamFor(void* user_data) {
  ucp_request_param_t param = {};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.user_data = user_data;
  return param;
}

}  // namespace

struct UcxTransfers::Pending {
  UcxTransfers* transfers = nullptr;
  UcxOperation operation;
  absl::Status result;      // Once it is finished.
  void* request = nullptr;  // By which UCX knows it while it is pending.
  Place* place = nullptr;
  Place::iterator position;
};

UcxTransfers::UcxTransfers(const TransportIdentity& identity, const GenerationKey* key,
                           UcxWorker* worker, Failure failure)
    : generation_(identity.generation),
      device_(identity.device),
      key_(key),
      worker_(worker),
      failure_(std::move(failure)) {}

UcxTransfers::~UcxTransfers() = default;

uint64_t UcxTransfers::TagOf(int sender, const Tag& tag) const {
  const uint64_t bits = PackUcxTag({.generation = generation_,
                                    .sender = sender,
                                    .traffic = static_cast<uint32_t>(tag.traffic),
                                    .channel = tag.channel,
                                    .sequence = tag.sequence});
  return WithoutControlTraffic(key_->Conceal(bits));
}

UcxTransfers::Pending& UcxTransfers::Add(UcxOperation operation) {
  Place& place = pending_[operation.peer];
  Pending& pending = place.emplace_back();
  pending.transfers = this;
  pending.operation = std::move(operation);
  pending.place = &place;
  pending.position = std::prev(place.end());
  return pending;
}

void UcxTransfers::Start(ucp_ep_h endpoint, UcxOperation operation) {
  Pending& pending = Add(std::move(operation));
  if (pending.operation.is_send) return StartSend(endpoint, pending);
  StartReceive(pending);
}

void UcxTransfers::TakeArrived(UcxOperation receive) {
  Pending& pending = Add(std::move(receive));
  StartReceive(pending);
  if (pending.place != &finished_) ucp_request_cancel(worker_->get(), pending.request);
}

void UcxTransfers::Refuse(Transport::Done done, absl::Status status) {
  Pending& pending = finished_.emplace_back();
  pending.operation.done = std::move(done);
  pending.result = std::move(status);
}

void UcxTransfers::StartSend(ucp_ep_h endpoint, Pending& pending) {
  const UcxOperation& operation = pending.operation;
  ucp_request_param_t param = ParamFor(&pending);
  param.cb.send = &OnSent;
  NoteRequest(pending, ucp_tag_send_nbx(endpoint, operation.data, operation.bytes,
                                        TagOf(device_, operation.tag), &param));
}

void UcxTransfers::StartReceive(Pending& pending) {
  const UcxOperation& operation = pending.operation;
  ucp_request_param_t param = ParamFor(&pending);
  param.cb.recv = &OnReceived;
  NoteRequest(pending,
              ucp_tag_recv_nbx(worker_->get(), operation.data, operation.bytes,
                               TagOf(operation.peer, operation.tag), ~uint64_t{0}, &param));
}

void UcxTransfers::NoteRequest(Pending& pending, ucs_status_ptr_t request) {
  if (!UCS_PTR_IS_PTR(request)) {
    End(pending, UCS_PTR_STATUS(request), pending.operation.bytes);
  } else if (pending.place != &finished_) {
    pending.request = request;
  }
}

void UcxTransfers::OnSent(void* request, ucs_status_t status, void* user_data) {
  ucp_request_free(request);
  Pending& pending = *static_cast<Pending*>(user_data);
  pending.transfers->End(pending, status, 0);
}

void UcxTransfers::OnReceived(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                              void* user_data) {
  const size_t received = info->length;  // Lives in the request.
  ucp_request_free(request);
  Pending& pending = *static_cast<Pending*>(user_data);
  pending.transfers->End(pending, status, received);
}

void UcxTransfers::End(Pending& pending, ucs_status_t status, size_t received) {
  pending.request = nullptr;
  if (pending.place == &abandoned_) {
    abandoned_.erase(pending.position);
    return;
  }
  Finish(pending, ResultOf(pending.operation, status, received));
}

absl::Status UcxTransfers::ResultOf(const UcxOperation& operation, ucs_status_t status,
                                    size_t received) const {
  const bool truncated = status == UCS_ERR_MESSAGE_TRUNCATED;
  if (!operation.is_send && (truncated || (status == UCS_OK && received != operation.bytes))) {
    return SizeMismatch(operation.peer, device_, operation.tag, received, operation.bytes);
  }
  if (status == UCS_OK) return absl::OkStatus();
  if (absl::Status failure = failure_(operation.peer); !failure.ok()) return failure;
  if (truncated) {
    return absl::InvalidArgumentError(absl::StrCat(ToString(operation.tag), ": device ", device_,
                                                   " sent ", operation.bytes, " bytes, device ",
                                                   operation.peer, " expected fewer"));
  }
  return absl::UnavailableError(
      absl::StrCat("device ", operation.peer, ": transfer failed: ", ucs_status_string(status)));
}

void UcxTransfers::Finish(Pending& pending, absl::Status result) {
  pending.result = std::move(result);
  finished_.splice(finished_.end(), *pending.place, pending.position);
  pending.place = &finished_;
}

void UcxTransfers::CancelReceives(int peer) {
  std::vector<void*> requests;
  for (const Pending& pending : pending_[peer]) {
    if (!pending.operation.is_send) requests.push_back(pending.request);
  }
  for (void* request : requests) ucp_request_cancel(worker_->get(), request);
}

bool UcxTransfers::pending_with(int peer) const {
  const auto place = pending_.find(peer);
  return place != pending_.end() && !place->second.empty();
}

void UcxTransfers::Abandon(int peer) {
  Place& place = pending_[peer];
  while (!place.empty()) {
    Pending& pending = place.front();
    Refuse(std::move(pending.operation.done), failure_(peer));
    pending.place = &abandoned_;
    abandoned_.splice(abandoned_.end(), place, pending.position);
  }
}

void UcxTransfers::FailAll() {
  for (auto& [peer, place] : pending_) {
    while (!place.empty()) Finish(place.front(), failure_(peer));
  }
  abandoned_.clear();
}

bool UcxTransfers::told() const { return finished_.empty(); }

bool UcxTransfers::RunDones() {
  if (finished_.empty()) return false;
  Place finished;
  finished.swap(finished_);
  for (Pending& pending : finished) pending.operation.done(std::move(pending.result));
  return true;
}

}  // namespace stagewright
