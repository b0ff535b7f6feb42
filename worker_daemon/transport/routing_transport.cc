#include "worker_daemon/transport/routing_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace stagewright {

absl::StatusOr<std::unique_ptr<RoutingTransport>> RoutingTransport::Create(
    const TransportIdentity& identity, const UcxOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<LocalTransport> local, LocalTransport::Create(identity));
  ASSIGN_OR_RETURN(std::unique_ptr<UcxTransport> ucx, UcxTransport::Create(identity, options));
  return std::unique_ptr<RoutingTransport>(
      new RoutingTransport(identity, std::move(local), std::move(ucx)));
}

RoutingTransport::RoutingTransport(TransportIdentity identity,
                                   std::unique_ptr<LocalTransport> local,
                                   std::unique_ptr<UcxTransport> ucx)
    : identity_(std::move(identity)), local_(std::move(local)), ucx_(std::move(ucx)) {}

std::string RoutingTransport::Address() const {
  TransportAddress address{"routing", identity_, ""};
  AppendString(local_->Address(), &address.payload);
  AppendString(ucx_->Address(), &address.payload);
  return EncodeAddress(address);
}

absl::Status RoutingTransport::Connect(const std::vector<Peer>& peers, absl::Time deadline) {
  std::map<int, Transport*> routes;
  std::vector<Peer> here;
  std::vector<Peer> elsewhere;
  for (const Peer& peer : peers) {
    ASSIGN_OR_RETURN(const TransportAddress address,
                     DecodePeerAddress("routing", identity_, peer.device, peer.address));
    absl::string_view payload = address.payload;
    std::string local;
    std::string ucx;
    if (!ConsumeString(&payload, &local) || !ConsumeString(&payload, &ucx) || !payload.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("address of device ", peer.device, ": malformed"));
    }
    if (LocalTransport::IsInThisProcess(local)) {
      here.push_back({peer.device, std::move(local)});
      routes[peer.device] = local_.get();
    } else {
      elsewhere.push_back({peer.device, std::move(ucx)});
      routes[peer.device] = ucx_.get();
    }
  }
  {
    absl::MutexLock lock(&mutex_);
    routes_ = std::move(routes);
  }
  RETURN_IF_ERROR(local_->Connect(here, deadline));
  return ucx_->Connect(elsewhere, deadline);
}

// A device without a route gets the error of a transport that does not know it either.
Transport& RoutingTransport::Route(int peer) {
  absl::MutexLock lock(&mutex_);
  const auto route = routes_.find(peer);
  return route == routes_.end() ? *local_ : *route->second;
}

void RoutingTransport::Send(int peer, Tag tag, const void* data, size_t bytes, Done done) {
  Route(peer).Send(peer, tag, data, bytes, std::move(done));
}

void RoutingTransport::Receive(int peer, Tag tag, void* data, size_t bytes, Done done) {
  Route(peer).Receive(peer, tag, data, bytes, std::move(done));
}

void RoutingTransport::Abort(absl::Status status) {
  local_->Abort(status);
  ucx_->Abort(std::move(status));
}

}  // namespace stagewright
