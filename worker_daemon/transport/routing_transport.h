// The transport a daemon uses: for each peer the best of the others.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker_daemon/transport/local_transport.h"
#include "worker_daemon/transport/transport.h"
#include "worker_daemon/transport/ucx_transport.h"

namespace stagewright {

// Peers in the same process are reached through a LocalTransport, all others through UCX.
class RoutingTransport : public Transport {
 public:
  static absl::StatusOr<std::unique_ptr<RoutingTransport>> Create(const TransportIdentity& identity,
                                                                  const UcxOptions& options = {});

  int device() const override { return identity_.device; }
  std::string Address() const override;
  absl::Status Connect(const std::vector<Peer>& peers, absl::Time deadline) override;
  void Send(int peer, Tag tag, const void* data, size_t bytes, Done done) override;
  void Receive(int peer, Tag tag, void* data, size_t bytes, Done done) override;
  void Abort(absl::Status status) override;

 private:
  RoutingTransport(TransportIdentity identity, std::unique_ptr<LocalTransport> local,
                   std::unique_ptr<UcxTransport> ucx);
  Transport& Route(int peer);

  const TransportIdentity identity_;
  const std::unique_ptr<LocalTransport> local_;
  const std::unique_ptr<UcxTransport> ucx_;
  absl::Mutex mutex_;
  std::map<int, Transport*> routes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagewright
