// The transport between processes, over UCX: shared memory inside a node; TCP, or RDMA where there
// is any, between nodes. Its thread polls briefly, then sleeps until UCX or a caller wakes it.
// Where all cores compute, that thread waits for one, and so does what it would have moved: threads
// that wait anyway move it themselves (Help), and those that start transfers begin them (Batch).
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker_daemon/transport/event_sleep.h"
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
  void Hold() override;
  void Release() override;
  void Help(absl::FunctionRef<bool()> ready) override;

 private:
  UcxTransport(TransportIdentity identity, const UcxOptions& options,
               std::unique_ptr<UcxWorker> worker, std::unique_ptr<LifeLine> life,
               std::unique_ptr<EventSleep> sleep);
  bool EdgesSettled() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return connecting_.empty() || !connect_failure_.ok();
  }
  void OnEdge(int device, absl::Status status);
  void Enqueue(std::function<void(UcxEngine&)> command);
  // What there is to do, once. Whether there was anything.
  bool TakeTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine_mutex_);
  bool RunCommands() ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine_mutex_);
  // Takes turns on the calling thread until `ready` or for so long, one at least.
  void Lend(absl::FunctionRef<bool()> ready, absl::Duration patience);
  void Loop();
  // `quiet`: the last turn found nothing to do.
  void Sleep(bool quiet);

  const TransportIdentity identity_;
  const absl::Duration spin_, longest_sleep_, patience_;
  const std::string worker_address_;
  const std::string life_name_;
  const std::unique_ptr<EventSleep> sleep_;

  // Held while somebody takes a turn. A `done` is called with it held.
  absl::Mutex engine_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  UcxEngine engine_ ABSL_GUARDED_BY(engine_mutex_);

  absl::Mutex mutex_;
  std::deque<std::function<void(UcxEngine&)>> commands_ ABSL_GUARDED_BY(mutex_);
  bool sleeping_ ABSL_GUARDED_BY(mutex_) = false;
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<int> connecting_ ABSL_GUARDED_BY(mutex_);
  absl::Status connect_failure_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> has_commands_ = false;  // Saves the thread the lock while it polls.
  // Threads that take turns instead of this one's; changed with mutex_ held.
  std::atomic<int> helpers_ = 0;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;  // Last: uses the members above.
};

}  // namespace stagewright
