#include "worker_daemon/transport/ucx/ucx_edges.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"
#include "worker_daemon/transport/unreached.h"

namespace stagewright {
namespace {

// How long the answer to a bye has to go out.
constexpr absl::Duration kAnswerOut = absl::Milliseconds(100);

absl::Status Gone(int device, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("device ", device, " has gone: ", why));
}

absl::Status NotReached(int device, absl::string_view why) {
  return WithUnreached(absl::UnavailableError(why), {device});
}

}  // namespace

UcxEdges::UcxEdges(UcxWorker* worker, const GenerationKey* key, UcxControlLine* control,
                   UcxTransfers* transfers)
    : worker_(worker), key_(key), control_(control), transfers_(transfers) {}

void UcxEdges::Connect(const std::map<int, UcxPeerAddress>& peers, Report report) {
  report_ = std::move(report);
  worker_->door().Open();
  close_door_at_ = peers.empty() ? SteadyNow() : absl::InfiniteFuture();
  for (const auto& [device, address] : peers) edges_[device].device = device;
  for (const auto& [device, address] : peers) {
    UcxEdge& edge = edges_[device];
    if (leaving_.has_value()) {
      Fail(edge, leaving_->reason);
    } else if (const auto bye = early_.byes.find(device); bye != early_.byes.end()) {
      Fail(edge, Gone(device, bye->second));
    } else {
      const auto hello = early_.hellos.find(device);
      edge.greeted = hello != early_.hellos.end();
      if (edge.greeted) edge.question = hello->second;
      Open(edge, address);
    }
  }
}

void UcxEdges::Open(UcxEdge& edge, const UcxPeerAddress& address) {
  const ucs_status_t status =
      edge.endpoint.Open(*worker_, address.worker, [this, &edge](ucs_status_t error) {
        edge.error = error;
        unsettled_ = true;
      });
  if (status != UCS_OK) {
    return Fail(edge, NotReached(edge.device,
                                 absl::StrCat("device ", edge.device,
                                              " cannot be reached: ", ucs_status_string(status))));
  }
  edge.watch = PeerWatch(address.process, address.life);
  edge.challenge = key_->Challenge();
  Say(edge, UcxControl::kHello, edge.challenge);
  if (edge.greeted) Say(edge, UcxControl::kHelloAnswer, edge.question);
}

void UcxEdges::Say(UcxEdge& edge, UcxControl type, absl::string_view text) {
  control_->Send(edge.endpoint.get(), edge.device, type, text, [this, &edge, type] {
    if (type == UcxControl::kByeAnswer) PartAt(edge, absl::InfinitePast());
  });
}

void UcxEdges::PartAt(UcxEdge& edge, absl::Time time) {
  edge.close_at = time;
  unsettled_ = true;
}

void UcxEdges::Tell(UcxEdge& edge, const absl::Status& status) {
  if (std::exchange(edge.reported, true)) return;
  const bool all = std::all_of(edges_.begin(), edges_.end(),
                               [](const auto& other) { return other.second.reported; });
  if (all) close_door_at_ = SteadyNow() + kDoorOpen;
  report_(edge.device, status);
}

void UcxEdges::TellIfReady(UcxEdge& edge) {
  if (edge.answered && edge.greeted) Tell(edge, absl::OkStatus());
}

void UcxEdges::Handle(const UcxControlMessage& message) {
  const auto found = edges_.find(message.from);
  if (found == edges_.end()) {
    if (message.type == UcxControl::kHello) early_.hellos[message.from] = message.text;
    if (message.type == UcxControl::kBye) early_.byes[message.from] = message.text;
    return;
  }
  UcxEdge& edge = found->second;
  switch (message.type) {
    case UcxControl::kHello:
      if (!edge.failure.ok() || (edge.greeted && edge.question == message.text)) return;
      edge.greeted = true;
      edge.question = message.text;
      Say(edge, UcxControl::kHelloAnswer, edge.question);
      return TellIfReady(edge);
    case UcxControl::kHelloAnswer:
      if (message.text != edge.challenge) return control_->Refuse(message.from);
      edge.answered = true;
      return TellIfReady(edge);
    case UcxControl::kBye:
      return HandleBye(edge, message.text);
    case UcxControl::kByeAnswer:
      return PartAt(edge, absl::InfinitePast());
  }
}

void UcxEdges::HandleBye(UcxEdge& edge, const std::string& reason) {
  if (!edge.endpoint.is_open() || edge.left) return;
  edge.left = true;
  // If both leave, the peer still waits for the bye that is queued here.
  PartAt(edge, leaving_.has_value() ? leaving_->end_by : SteadyNow() + kAnswerOut);
  if (edge.failure.ok()) Fail(edge, Gone(edge.device, reason));
  Say(edge, UcxControl::kByeAnswer);
}

// No operation with the peer can end well any more, whatever UCX thinks of the endpoint.
void UcxEdges::HandleGone(UcxEdge& edge, absl::string_view what) {
  if (edge.failure.ok()) Fail(edge, Gone(edge.device, what));
  PartAt(edge, absl::InfinitePast());
}

void UcxEdges::Fail(UcxEdge& edge, const absl::Status& failure) {
  edge.failure = failure;
  transfers_->CancelReceives(edge.device);
  Tell(edge, failure);
}

void UcxEdges::Leave(const absl::Status& reason) {
  if (leaving_.has_value()) return;
  leaving_ = {.reason = reason, .end_by = SteadyNow() + kAnswer};
  unsettled_ = true;
  for (auto& [device, edge] : edges_) {
    if (!edge.endpoint.is_open() || edge.left) continue;
    transfers_->CancelReceives(device);
    if (!edge.error.has_value()) Say(edge, UcxControl::kBye, reason.message());
    Tell(edge, reason);
  }
}

// Closing an endpoint takes progress, hence the second look.
bool UcxEdges::MayEnd() {
  if (!leaving_.has_value()) return false;
  const bool alone = std::all_of(edges_.begin(), edges_.end(), [](const auto& edge) {
    return !edge.second.endpoint.is_open() || edge.second.parted;
  });
  return (std::exchange(leaving_->alone, alone) && alone) || SteadyNow() >= leaving_->end_by;
}

void UcxEdges::CloseAll() {
  for (auto& [device, edge] : edges_) {
    if (edge.endpoint.is_open()) edge.endpoint.Close();
  }
}

void UcxEdges::Close(UcxEdge& edge) {
  edge.endpoint.Close();
  edge.close_at.reset();
  edge.abandon_at = SteadyNow() + kDrain;
}

bool UcxEdges::Settle(bool quiet) {
  const absl::Time now = SteadyNow();
  if (now >= look_at_ && (quiet || now >= look_at_ + kAnswer)) LookForEnds();
  if (now >= close_door_at_) {
    worker_->door().Close();
    close_door_at_ = absl::InfiniteFuture();
  }
  if (!unsettled_) return false;
  bool any = false;
  unsettled_ = false;
  for (auto& [device, edge] : edges_) {
    any |= SettleOne(edge, now);
    unsettled_ |= edge.due_at() != absl::InfiniteFuture();
  }
  return any;
}

void UcxEdges::LookForEnds() {
  look_at_ = SteadyNow() + kWatch;
  for (auto& [device, edge] : edges_) {
    if (const std::string end = edge.watch.TakeEnd(); !end.empty()) HandleGone(edge, end);
  }
}

bool UcxEdges::SettleOne(UcxEdge& edge, absl::Time now) {
  bool any = false;
  if (edge.error.has_value()) {
    const ucs_status_t error = *std::exchange(edge.error, std::nullopt);
    any = true;
    if (edge.failure.ok()) {
      const std::string why =
          absl::StrCat("device ", edge.device, ": connection lost: ", ucs_status_string(error));
      Fail(edge, edge.reported ? absl::UnavailableError(why) : NotReached(edge.device, why));
    }
    if (edge.endpoint.is_open()) Close(edge);
  }
  if (edge.endpoint.is_open() && edge.close_at.has_value() && *edge.close_at <= now) {
    edge.close_at.reset();
    edge.parted = true;
    if (!edge.endpoint.over_tcp()) Close(edge);
    any = true;
  }
  if (edge.abandon_at.has_value() &&
      (!transfers_->pending_with(edge.device) || *edge.abandon_at <= now)) {
    edge.abandon_at.reset();
    transfers_->Abandon(edge.device);
    any = true;
  }
  return any;
}

absl::Time UcxEdges::next_timer() const {
  absl::Time next = leaving_.has_value() ? leaving_->end_by : close_door_at_;
  if (!unsettled_) return next;
  for (const auto& [device, edge] : edges_) next = std::min(next, edge.due_at());
  return next;
}

std::vector<int> UcxEdges::end_fds() const {
  std::vector<int> fds;
  for (const auto& [device, edge] : edges_) {
    for (const int fd : edge.watch.fds()) fds.push_back(fd);
  }
  return fds;
}

const UcxEdge* UcxEdges::Find(int device) const {
  const auto edge = edges_.find(device);
  return edge == edges_.end() ? nullptr : &edge->second;
}

absl::Status UcxEdges::FailureOf(int device) const {
  return leaving_.has_value() ? leaving_->reason : Find(device)->failure;
}

}  // namespace stagewright
