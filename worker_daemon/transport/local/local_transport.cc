#include "worker_daemon/transport/local/local_transport.h"

#include <unistd.h>

#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace stagewright {
namespace {

// Random, since process ids repeat between containers.
const std::string& ProcessToken() {
  static const auto* token = [] {
    std::random_device random;
    return new std::string(absl::StrCat(absl::Hex(random(), absl::kZeroPad8),
                                        absl::Hex(random(), absl::kZeroPad8), "-", getpid()));
  }();
  return *token;
}

struct LocalPayload {
  std::string process;
  LocalHub::MemberId member = 0;
};

absl::StatusOr<LocalPayload> DecodePayload(absl::string_view bytes) {
  LocalPayload payload;
  std::string member;
  if (!ConsumeString(&bytes, &payload.process) || !ConsumeString(&bytes, &member) ||
      !bytes.empty() || !absl::SimpleAtoi(member, &payload.member)) {
    return absl::InvalidArgumentError("malformed address of the local transport");
  }
  return payload;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalTransport>> LocalTransport::Create(TransportIdentity identity) {
  RETURN_IF_ERROR(CheckIdentity(identity));
  return std::unique_ptr<LocalTransport>(new LocalTransport(std::move(identity)));
}

LocalTransport::LocalTransport(TransportIdentity identity)
    : identity_(std::move(identity)),
      hub_(LocalHub::For(identity_.job, identity_.generation)),
      member_(hub_->Join(identity_.device, &thread_)) {}

LocalTransport::~LocalTransport() {
  Abort(absl::CancelledError("the transport was closed"));
  hub_->AwaitIdle(member_);
}

std::string LocalTransport::Address() const {
  TransportAddress address{"local", identity_, ""};
  AppendString(ProcessToken(), &address.payload);
  AppendString(absl::StrCat(member_), &address.payload);
  return EncodeAddress(address);
}

bool LocalTransport::IsInThisProcess(absl::string_view bytes) {
  absl::StatusOr<TransportAddress> address = DecodeAddress("local", bytes);
  if (!address.ok()) return false;
  absl::StatusOr<LocalPayload> payload = DecodePayload(address->payload);
  return payload.ok() && payload->process == ProcessToken();
}

absl::Status LocalTransport::Connect(const std::vector<Peer>& peers, absl::Time) {
  std::map<int, LocalHub::MemberId> members;
  for (const Peer& peer : peers) {
    ASSIGN_OR_RETURN(const TransportAddress address,
                     DecodePeerAddress("local", identity_, peer.device, peer.address));
    ASSIGN_OR_RETURN(const LocalPayload payload, DecodePayload(address.payload));
    if (payload.process != ProcessToken()) {
      return absl::InvalidArgumentError(
          absl::StrCat("device ", peer.device, " is in another process"));
    }
    RETURN_IF_ERROR(hub_->Find(payload.member, peer.device));
    members[peer.device] = payload.member;
  }
  absl::MutexLock lock(&mutex_);
  peers_ = std::move(members);
  return absl::OkStatus();
}

void LocalTransport::Send(int peer, Tag tag, const void* data, size_t bytes, Done done) {
  Post(peer, {true, tag, data, nullptr, bytes, std::move(done), false, nullptr, nullptr});
}

void LocalTransport::Receive(int peer, Tag tag, void* data, size_t bytes, Done done) {
  Post(peer, {false, tag, nullptr, data, bytes, std::move(done), false, nullptr, nullptr});
}

ReferenceTransport* LocalTransport::ByReference(int peer) {
  absl::MutexLock lock(&mutex_);
  return peers_.contains(peer) ? this : nullptr;
}

void LocalTransport::SendObject(int peer, Tag tag, Object object, Done done) {
  LocalOperation operation{.is_send = true, .tag = tag, .done = std::move(done)};
  operation.by_reference = true;
  operation.object = std::move(object);
  Post(peer, std::move(operation));
}

void LocalTransport::ReceiveObject(int peer, Tag tag, Received done) {
  LocalOperation operation{.tag = tag};
  operation.by_reference = true;
  operation.received = std::move(done);
  Post(peer, std::move(operation));
}

void LocalTransport::Abort(absl::Status status) {
  if (status.ok()) status = absl::CancelledError("the transport was aborted");
  hub_->Leave(member_, status);
}

void LocalTransport::Post(int peer, LocalOperation operation) {
  LocalHub::MemberId member = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (const auto found = peers_.find(peer); found != peers_.end()) member = found->second;
  }
  if (member == 0) {
    hub_->Fail(member_, std::move(operation),
               absl::InvalidArgumentError(absl::StrCat("device ", identity_.device,
                                                       " is not connected to device ", peer)));
  } else if (operation.tag.channel > Tag::kMaxChannel) {
    hub_->Fail(member_, std::move(operation),
               absl::InvalidArgumentError(absl::StrCat("channel ", operation.tag.channel,
                                                       " is above ", Tag::kMaxChannel)));
  } else {
    hub_->Post(member_, member, std::move(operation));
  }
}

}  // namespace stagewright
