// The single-threaded heart of the UCX transport: everything that touches a UCX worker. Its owner
// (UcxTransport) has one thread at a time call it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker_daemon/transport/identity.h"
#include "worker_daemon/transport/proof/generation_key.h"
#include "worker_daemon/transport/ucx/life_line.h"
#include "worker_daemon/transport/ucx/ucx_control_line.h"
#include "worker_daemon/transport/ucx/ucx_edges.h"
#include "worker_daemon/transport/ucx/ucx_transfers.h"
#include "worker_daemon/transport/ucx/ucx_worker.h"

namespace stagewright {

// Invariant: no worker is left once the engine has ended, and nothing is pending then.
class UcxEngine {
 public:
  // `life`, which may be null, ends with the worker. REQUIRES: GenerationKey::Check(key).
  UcxEngine(TransportIdentity identity, std::string key, std::unique_ptr<UcxWorker> worker,
            std::unique_ptr<LifeLine> life);

  void Connect(const std::map<int, UcxPeerAddress>& peers, UcxEdges::Report report);
  void Post(UcxOperation operation);
  void Abort(const absl::Status& status);

  // Moves everything that can move, and calls the `done`s. Whether anything happened.
  bool Progress();

  // After Abort: whether all operations are done and the worker is gone.
  bool closed() const { return worker_ == nullptr && transfers_.told(); }

  // Before a sleep, when Progress had nothing to do: makes event_fd() tell of whatever comes from
  // now on. False if something came already, so that Progress is due.
  bool Arm();
  // Becomes readable when Progress is due; -1 when nothing comes any more.
  int event_fd() const { return worker_ == nullptr ? -1 : worker_->event_fd(); }
  // File descriptors that are readable once a peer has ended, until Progress has seen it.
  std::vector<int> end_fds() const;

  // When Progress must be called at the latest, even if UCX has no event.
  absl::Time next_timer() const;

 private:
  absl::Status RefusalOf(const UcxOperation& operation) const;
  bool HandleControl();
  void End();

  const TransportIdentity identity_;
  const GenerationKey key_;
  std::unique_ptr<LifeLine> life_;
  UcxControlLine control_;
  UcxTransfers transfers_;
  UcxEdges edges_;
  std::unique_ptr<UcxWorker> worker_;  // Null after End. Last: refers to the members above.
};

}  // namespace stagewright
