#include "tests/worker_daemon/support/transports/pair_transport.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace stagewright::testing {

absl::StatusOr<std::unique_ptr<Transport>> PairTransport::Create(const TransportIdentity& identity,
                                                                 const TransportFactory& near,
                                                                 const TransportFactory& far) {
  TransportIdentity of_near = identity, of_far = identity;
  of_near.job += "-near";
  of_far.job += "-far";
  ASSIGN_OR_RETURN(std::unique_ptr<Transport> first, near(of_near));
  ASSIGN_OR_RETURN(std::unique_ptr<Transport> second, far(of_far));
  return std::unique_ptr<Transport>(new PairTransport(std::move(first), std::move(second)));
}

// The length of the first address, a space and both.
std::string PairTransport::Address() const {
  const std::string near = near_->Address();
  return absl::StrCat(near.size(), " ", near, far_->Address());
}

absl::Status PairTransport::Connect(const std::vector<Peer>& peers, absl::Time deadline) {
  std::vector<Peer> near, far;
  for (const Peer& peer : peers) {
    const size_t space = peer.address.find(' ');
    size_t length = 0;
    if (space == std::string::npos || !absl::SimpleAtoi(peer.address.substr(0, space), &length))
      return absl::InvalidArgumentError("not the address of a pair");
    if (IsNear(peer.device)) {
      near.push_back({peer.device, peer.address.substr(space + 1, length)});
    } else {
      far.push_back({peer.device, peer.address.substr(space + 1 + length)});
    }
  }
  RETURN_IF_ERROR(near_->Connect(near, deadline));
  return far_->Connect(far, deadline);
}

void PairTransport::Send(int peer, Tag tag, const void* data, size_t bytes, Done done) {
  Way(peer).Send(peer, tag, data, bytes, std::move(done));
}

void PairTransport::Receive(int peer, Tag tag, void* data, size_t bytes, Done done) {
  Way(peer).Receive(peer, tag, data, bytes, std::move(done));
}

void PairTransport::Abort(absl::Status status) {
  near_->Abort(status);
  far_->Abort(status);
}

}  // namespace stagewright::testing
