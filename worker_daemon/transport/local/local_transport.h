// The transport between devices of one process: one copy, from the sender's memory to the
// receiver's, on the receiver's progress thread; or none, by reference.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker_daemon/transport/identity.h"
#include "worker_daemon/transport/local/local_hub.h"
#include "worker_daemon/transport/reference_transport.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright {

// A send is done when the receiver has its bytes. Peers need not connect to each other at the same
// time: Connect never waits.
class LocalTransport : public Transport, public ReferenceTransport {
 public:
  static absl::StatusOr<std::unique_ptr<LocalTransport>> Create(TransportIdentity identity);
  ~LocalTransport() override;  // Pending operations fail with CANCELLED.

  int device() const override { return identity_.device; }
  std::string Address() const override;
  absl::Status Connect(const std::vector<Peer>& peers, absl::Time deadline) override;
  void Send(int peer, Tag tag, const void* data, size_t bytes, Done done) override;
  void Receive(int peer, Tag tag, void* data, size_t bytes, Done done) override;
  void Abort(absl::Status status) override;
  ReferenceTransport* ByReference(int peer) override;

  void SendObject(int peer, Tag tag, Object object, Done done) override;
  void ReceiveObject(int peer, Tag tag, Received done) override;

  // Whether `address`, of scheme "local", names a transport of this process.
  static bool IsInThisProcess(absl::string_view address);

 private:
  explicit LocalTransport(TransportIdentity identity);
  void Post(int peer, LocalOperation operation);

  const TransportIdentity identity_;
  const std::shared_ptr<LocalHub> hub_;
  ProgressThread thread_;
  const LocalHub::MemberId member_;
  absl::Mutex mutex_;
  std::map<int, LocalHub::MemberId> peers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagewright
