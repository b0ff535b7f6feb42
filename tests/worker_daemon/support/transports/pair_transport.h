// Two transports as one: to some devices the messages of a job take one way, to others the other.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/worker_daemon/support/transports/transport_factory.h"
#include "worker_daemon/transport/identity.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright::testing {

// Devices 2n and 2n + 1 are near each other.
class PairTransport : public Transport {
 public:
  static absl::StatusOr<std::unique_ptr<Transport>> Create(const TransportIdentity& identity,
                                                           const TransportFactory& near,
                                                           const TransportFactory& far);

  int device() const override { return near_->device(); }
  std::string Address() const override;
  absl::Status Connect(const std::vector<Peer>& peers, absl::Time deadline) override;
  void Send(int peer, Tag tag, const void* data, size_t bytes, Done done) override;
  void Receive(int peer, Tag tag, void* data, size_t bytes, Done done) override;
  void Abort(absl::Status status) override;

 private:
  PairTransport(std::unique_ptr<Transport> near, std::unique_ptr<Transport> far)
      : near_(std::move(near)), far_(std::move(far)) {}
  bool IsNear(int peer) const { return peer / 2 == device() / 2; }
  Transport& Way(int peer) { return IsNear(peer) ? *near_ : *far_; }

  std::unique_ptr<Transport> near_, far_;
};

}  // namespace stagewright::testing
