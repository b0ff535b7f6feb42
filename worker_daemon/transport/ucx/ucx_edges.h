// Connecting to peers, losing them and leaving them.
//
// Connecting. Each end says hello with a challenge, and the edge is ready for who has heard the
// other's hello and the answer to its own, which repeats the challenge. All are proved by the key
// (generation_key.h); what is not, or answers another challenge, changes nothing, whoever it says
// it comes from, and the true peer may still come.
//
// A second after all edges are ready, or have failed, nobody is let in any more (../tcp_door.h).
//
// Leaving. UCX over shared memory does not tell a peer that an endpoint closed, and what lies
// unread in a ring is lost with its sender. So who leaves says "bye" to each peer, and once all
// have answered (or died, or a second has passed) ends its whole UCX worker. Who hears "bye" gives
// up on what the peer has not sent, answers, and closes too. A peer that goes without a word, or
// whose bye was stuck behind other data, is noticed by UCX when a connection breaks; inside a
// machine, by a PeerWatch.
//
// Endpoints over TCP are closed only after UCX reported an error on them, or together with the
// worker. UCX 1.13 keeps the connection of an endpoint that is closed with data unsent, to receive
// from it and to send the rest. If the peer closes its end too, one pass over the socket's events
// frees that connection for the arrived end and then, for the writable socket, calls through the
// freed memory (uct_tcp_iface_handle_events). So what is pending with a peer that left over TCP
// waits until the connection breaks, which the peer brings about by ending its worker; and after
// the endpoints of a worker were closed for its end, it makes no progress any more.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker_daemon/transport/proof/generation_key.h"
#include "worker_daemon/transport/ucx/ucx_control_line.h"
#include "worker_daemon/transport/ucx/ucx_edge.h"
#include "worker_daemon/transport/ucx/ucx_transfers.h"
#include "worker_daemon/transport/ucx/ucx_worker.h"

namespace stagewright {

// How a peer is reached, and how its end is noticed.
struct UcxPeerAddress {
  std::string worker;   // As UCX names it.
  std::string process;  // As in ProcessName().
  std::string life;     // LifeLine::name(), or empty.
};

// Invariant: an edge is never removed, and an edge with a failure never starts a transfer again.
// Each edge of Connect is reported once. Not thread-safe.
class UcxEdges {
 public:
  static constexpr absl::Duration kAnswer = absl::Seconds(1);  // How long a bye waits for answers.
  static constexpr absl::Duration kWatch = absl::Milliseconds(50);  // Between looks at peers.
  // How long after all edges are there UCX takes connections: those of peers are on their way.
  static constexpr absl::Duration kDoorOpen = absl::Seconds(1);
  // How long after its endpoint was closed an operation is abandoned.
  static constexpr absl::Duration kDrain = absl::Milliseconds(200);

  // Called once for each peer of Connect, when its edge is ready or has failed.
  using Report = std::function<void(int device, absl::Status)>;

  // All must outlive the calls; `worker` ends before this does.
  UcxEdges(UcxWorker* worker, const GenerationKey* key, UcxControlLine* control,
           UcxTransfers* transfers);

  void Connect(const std::map<int, UcxPeerAddress>& peers, Report report);
  void Handle(const UcxControlMessage& message);

  // Says bye to all, and fails all operations with `reason`, which is not OK. Only the first call
  // has an effect.
  void Leave(const absl::Status& reason);
  // After Leave: whether no peer waits for us any more, or they have had their time. Asked after
  // each progress.
  bool MayEnd();
  // Closes every endpoint, for the end of the worker. No other call that changes anything follows.
  void CloseAll();

  // Acts upon errors, ends and times. `quiet`: UCX had nothing to do just now, so all that the
  // peers had sent has been looked at. Whether anything happened.
  bool Settle(bool quiet);
  // When Settle or MayEnd must be asked at the latest.
  absl::Time next_timer() const;
  // What becomes readable when a peer ends.
  std::vector<int> end_fds() const;

  // The edge to a device of Connect; null for others.
  const UcxEdge* Find(int device) const;
  // Why no operation with any peer is possible any more: the reason of Leave.
  absl::Status reason() const { return leaving_.has_value() ? leaving_->reason : absl::OkStatus(); }
  // Why none with this peer is. REQUIRES: Find(device).
  absl::Status FailureOf(int device) const;

 private:
  struct Leaving {
    absl::Status reason;
    absl::Time end_by;
    bool alone = false;  // All peers had parted when MayEnd was last asked.
  };
  // What was heard from devices we are not connected to yet.
  struct Early {
    std::map<int, std::string> hellos;  // What they ask.
    std::map<int, std::string> byes;
  };

  void Open(UcxEdge& edge, const UcxPeerAddress& address);
  void Say(UcxEdge& edge, UcxControl type, absl::string_view text = "");
  void PartAt(UcxEdge& edge, absl::Time time);
  void Tell(UcxEdge& edge, const absl::Status& status);
  void TellIfReady(UcxEdge& edge);
  void HandleBye(UcxEdge& edge, const std::string& reason);
  void HandleGone(UcxEdge& edge, absl::string_view what);
  void Fail(UcxEdge& edge, const absl::Status& failure);
  void Close(UcxEdge& edge);
  void LookForEnds();
  bool SettleOne(UcxEdge& edge, absl::Time now);

  UcxWorker* const worker_;
  const GenerationKey* const key_;
  UcxControlLine* const control_;
  UcxTransfers* const transfers_;
  Report report_;
  std::map<int, UcxEdge> edges_;
  Early early_;
  std::optional<Leaving> leaving_;
  bool unsettled_ = false;  // Some edge may be due.
  absl::Time close_door_at_ = absl::InfiniteFuture();
  absl::Time look_at_ = absl::InfinitePast();
};

}  // namespace stagewright
