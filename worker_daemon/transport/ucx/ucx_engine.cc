#include "worker_daemon/transport/ucx/ucx_engine.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

constexpr int kProgressBurst = 64;  // Then look at the rest.

}  // namespace

UcxEngine::UcxEngine(TransportIdentity identity, std::string key, std::unique_ptr<UcxWorker> worker,
                     std::unique_ptr<LifeLine> life)
    : identity_(std::move(identity)),
      key_(identity_, std::move(key)),
      life_(std::move(life)),
      control_(identity_, &key_, worker.get()),
      transfers_(identity_, &key_, worker.get(),
                 [this](int peer) { return edges_.FailureOf(peer); }),
      edges_(worker.get(), &key_, &control_, &transfers_),
      worker_(std::move(worker)) {}

void UcxEngine::Connect(const std::map<int, UcxPeerAddress>& peers, UcxEdges::Report report) {
  edges_.Connect(peers, std::move(report));
}

absl::Status UcxEngine::RefusalOf(const UcxOperation& operation) const {
  if (absl::Status reason = edges_.reason(); !reason.ok()) return reason;
  const UcxEdge* edge = edges_.Find(operation.peer);
  if (edge == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("device ", identity_.device, " is not connected to device ", operation.peer));
  }
  if (operation.tag.channel > Tag::kMaxChannel) {
    return absl::InvalidArgumentError(
        absl::StrCat("channel ", operation.tag.channel, " is above ", Tag::kMaxChannel));
  }
  return operation.is_send || !edge->left ? edge->failure : absl::OkStatus();
}

void UcxEngine::Post(UcxOperation operation) {
  if (absl::Status refusal = RefusalOf(operation); !refusal.ok()) {
    return transfers_.Refuse(std::move(operation.done), std::move(refusal));
  }
  const UcxEdge& edge = *edges_.Find(operation.peer);
  if (!edge.failure.ok()) return transfers_.TakeArrived(std::move(operation));
  transfers_.Start(edge.endpoint.get(), std::move(operation));
}

void UcxEngine::Abort(const absl::Status& status) { edges_.Leave(status); }

bool UcxEngine::HandleControl() {
  bool any = false;
  std::vector<UcxControlMessage> messages = control_.Take();
  for (; !messages.empty(); messages = control_.Take()) {
    for (const UcxControlMessage& message : messages) edges_.Handle(message);
    any = true;
  }
  return control_.Listen() || any;
}

bool UcxEngine::Progress() {
  if (worker_ == nullptr) return transfers_.RunDones();
  bool any = false;
  for (int i = 0; i < kProgressBurst && ucp_worker_progress(worker_->get()) != 0; ++i) any = true;
  any |= HandleControl();
  any |= edges_.Settle(!any);
  if (edges_.MayEnd()) {
    End();
    any = true;
  }
  any |= transfers_.RunDones();
  return any;
}

// Closes everything and, without any progress in between, destroys the worker.
void UcxEngine::End() {
  edges_.CloseAll();
  control_.StopListening();
  worker_.reset();
  life_.reset();
  transfers_.FailAll();
}

bool UcxEngine::Arm() {
  // UCS_ERR_BUSY: something arrived meanwhile.
  return worker_ == nullptr || ucp_worker_arm(worker_->get()) == UCS_OK;
}

std::vector<int> UcxEngine::end_fds() const {
  return worker_ == nullptr ? std::vector<int>() : edges_.end_fds();
}

absl::Time UcxEngine::next_timer() const {
  return worker_ == nullptr ? absl::InfiniteFuture() : edges_.next_timer();
}

}  // namespace stagewright
