// The transport between processes, over UCX: shared memory inside a node; TCP, or RDMA where there
// is any, between nodes. Its thread polls briefly, then sleeps until UCX or a caller wakes it.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker_daemon/transport/identity.h"
#include "worker_daemon/transport/transport.h"
#include "worker_daemon/transport/ucx/life_line.h"
#include "worker_daemon/transport/ucx/ucx_engine.h"
#include "worker_daemon/transport/ucx/ucx_worker.h"

namespace stagewright {

class UcxTransport : public Transport {
 public:
  // Errors: those of CheckIdentity, GenerationKey::Check and UcxWorker::Create.
  static absl::StatusOr<std::unique_ptr<UcxTransport>> Create(TransportIdentity identity,
                                                              const UcxOptions& options = {});
  // Pending operations fail with CANCELLED. Takes up to a second if a peer does not answer.
  ~UcxTransport() override;

  int device() const override { return identity_.device; }
  std::string Address() const override;
  absl::Status Connect(const std::vector<Peer>& peers, absl::Time deadline) override;
  void Send(int peer, Tag tag, const void* data, size_t bytes, Done done) override;
  void Receive(int peer, Tag tag, void* data, size_t bytes, Done done) override;
  void Abort(absl::Status status) override;

 private:
  UcxTransport(TransportIdentity identity, const UcxOptions& options,
               std::unique_ptr<UcxWorker> worker, std::unique_ptr<LifeLine> life, int wake_fd);
  bool EdgesSettled() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return connecting_.empty() || !connect_failure_.ok();
  }
  void OnEdge(int device, absl::Status status);
  void Enqueue(std::function<void(UcxEngine&)> command);
  bool RunCommands();
  void Loop();
  void Sleep();

  const TransportIdentity identity_;
  const absl::Duration spin_;
  const std::string worker_address_;
  const std::string life_name_;
  const int wake_fd_;
  UcxEngine engine_;  // Only the thread uses it.

  absl::Mutex mutex_;
  std::deque<std::function<void(UcxEngine&)>> commands_ ABSL_GUARDED_BY(mutex_);
  bool sleeping_ ABSL_GUARDED_BY(mutex_) = false;
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<int> connecting_ ABSL_GUARDED_BY(mutex_);
  absl::Status connect_failure_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> has_commands_ = false;  // Saves the thread the lock while it polls.
  std::atomic<bool> stopping_ = false;
  std::thread thread_;  // Last: uses the members above.
};

}  // namespace stagewright
