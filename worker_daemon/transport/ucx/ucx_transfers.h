// The sends and receives that the owner of a UCX transport has started.
//
// Invariant: an operation is in one place. It is pending with its peer while UCX has it; finished,
// with a result, until its `done` is called; or abandoned, where its owner was told although UCX
// never ended it (a receive cut off in the middle). What is abandoned was cut off from the peer
// before, so that nothing writes to its memory any more. Not thread-safe.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>

#include "absl/status/status.h"
#include "worker_daemon/transport/identity.h"
#include "worker_daemon/transport/proof/generation_key.h"
#include "worker_daemon/transport/transport.h"
#include "worker_daemon/transport/ucx/ucx_worker.h"

namespace stagewright {

struct UcxOperation {
  bool is_send = false;
  int peer = 0;
  Tag tag;
  void* data = nullptr;  // Not written to by sends.
  size_t bytes = 0;
  Transport::Done done;
};

class UcxTransfers {
 public:
  // Why no operation with a peer can end well any more; OK while it can.
  using Failure = std::function<absl::Status(int peer)>;

  // Both outlive the calls. `worker` ends before this does, since it refers to operations here
  // until then.
  UcxTransfers(const TransportIdentity& identity, const GenerationKey* key, UcxWorker* worker,
               Failure failure);
  ~UcxTransfers();
  UcxTransfers(const UcxTransfers&) = delete;
  UcxTransfers& operator=(const UcxTransfers&) = delete;

  // `endpoint` leads to the peer. REQUIRES: operation.tag.channel <= Tag::kMaxChannel.
  void Start(ucp_ep_h endpoint, UcxOperation operation);
  // Receives what the peer sent before it left: that is here already; anything else will not come.
  void TakeArrived(UcxOperation receive);
  // An operation that does not start.
  void Refuse(Transport::Done done, absl::Status status);

  // Ends those of a peer that nothing has arrived for; the others end by themselves, or never.
  void CancelReceives(int peer);
  bool pending_with(int peer) const;
  // Gives up what is pending with a peer. REQUIRES: its endpoint was closed.
  void Abandon(int peer);
  // Ends all that is pending. REQUIRES: the worker has ended.
  void FailAll();

  // Calls the `done`s of what has finished. Whether there was any.
  bool RunDones();
  // Whether every `done` of what has finished was called.
  bool told() const;

 private:
  struct Pending;
  using Place = std::list<Pending>;

  uint64_t TagOf(int sender, const Tag& tag) const;
  Pending& Add(UcxOperation operation);
  void StartSend(ucp_ep_h endpoint, Pending& pending);
  void StartReceive(Pending& pending);
  void NoteRequest(Pending& pending, ucs_status_ptr_t request);
  void End(Pending& pending, ucs_status_t status, size_t received);
  absl::Status ResultOf(const UcxOperation& operation, ucs_status_t status, size_t received) const;
  void Finish(Pending& pending, absl::Status result);
  static void OnSent(void* request, ucs_status_t status, void* user_data);
  static void OnReceived(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                         void* user_data);

  const uint64_t generation_;
  const int device_;
  const GenerationKey* const key_;
  UcxWorker* const worker_;
  const Failure failure_;
  std::map<int, Place> pending_;  // By peer.
  Place finished_;
  Place abandoned_;
};

}  // namespace stagewright
