// The single-threaded heart of the UCX transport: everything that touches a UCX worker. Its owner
// (UcxTransport) calls it from one thread only.
//
// Tags, from the high bits: generation 8, sending device 12, traffic 4, channel 20, sequence 20.
// Traffic 15 is for control messages, whose channel says which: hello, bye, and answers to them.
//
// Leaving. UCX over shared memory does not tell a peer that an endpoint closed, and what lies
// unread in a ring is lost with its sender. So who leaves says "bye" to each peer, and once all
// have answered (or died, or a second has passed) ends its whole UCX worker. Who hears "bye" gives
// up on what the peer has not sent, answers, and closes too. A peer that goes without a word, or
// whose bye was stuck behind other data, is noticed by UCX when a connection breaks; inside a
// machine, by a LifeWatch and a ProcessWatch.
//
// Endpoints over TCP are closed only after UCX reported an error on them, or together with the
// worker. UCX 1.13 keeps the connection of an endpoint that is closed with data unsent, to receive
// from it and to send the rest. If the peer closes its end too, one pass over the socket's events
// frees that connection for the arrived end and then, for the writable socket, calls through the
// freed memory (uct_tcp_iface_handle_events). So what is pending with a peer that left over TCP
// waits until the connection breaks, which the peer brings about by ending its worker; and after
// the endpoints of a worker were closed for its end, it makes no progress any more.
//
// An operation that UCX will not end (a receive cut off in the middle) is abandoned kDrain after
// its endpoint was closed: its owner is told, and nothing writes to the memory any more.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker_daemon/transport/identity.h"
#include "worker_daemon/transport/transport.h"
#include "worker_daemon/transport/ucx/life_line.h"
#include "worker_daemon/transport/ucx/ucx_edge.h"
#include "worker_daemon/transport/ucx/ucx_worker.h"

namespace stagewright {

class UcxEngine {
 public:
  static constexpr uint32_t kControlTraffic = 15;
  static constexpr absl::Duration kAnswer = absl::Seconds(1);
  static constexpr absl::Duration kWatch = absl::Milliseconds(50);
  static constexpr absl::Duration kDrain = absl::Milliseconds(200);

  // Called once for each peer of Connect, when its edge is ready or has failed.
  using EdgeReport = std::function<void(int device, absl::Status)>;

  // `life`, which may be null, ends with the worker.
  UcxEngine(TransportIdentity identity, std::unique_ptr<UcxWorker> worker,
            std::unique_ptr<LifeLine> life);
  ~UcxEngine();

  struct PeerAddress {
    std::string worker;   // As UCX names it.
    std::string process;  // As in ProcessName().
    std::string life;     // LifeLine::name(), or empty.
  };
  void Connect(const std::map<int, PeerAddress>& peers, EdgeReport report);
  void Post(UcxOperation operation);
  void Abort(const absl::Status& status);

  // Moves everything that can move, and calls the `done`s. Whether anything happened.
  bool Progress();

  // After Abort: whether all operations are done and the worker is gone.
  bool closed() const { return worker_ == nullptr && finished_.empty(); }

  // Before a sleep: makes wake_fds() tell of whatever comes from now on. False if something came
  // already, so that Progress is due.
  bool Arm();
  // File descriptors that become readable when Progress is due.
  std::vector<int> wake_fds() const;

  // When Progress must be called at the latest, even if UCX has no event.
  absl::Time next_timer() const;

 private:
  using Pending = UcxPending;
  using Edge = UcxEdge;
  using Control = UcxControl;
  using ControlSend = UcxControlSend;
  using ControlReceive = UcxControlReceive;
  using ControlMessage = UcxControlMessage;

  // ucx_engine.cc: operations.
  uint64_t PackTag(int sender, uint32_t traffic, uint32_t channel, uint32_t sequence) const;
  void StartTransfer(Edge& edge, Pending& pending);
  void EndTransfer(Pending& pending, ucs_status_t status, size_t received);
  void Finish(Pending& pending, absl::Status result);
  bool RunDones();
  static void OnSent(void* request, ucs_status_t status, void* user_data);
  static void OnReceived(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                         void* user_data);

  // ucx_edges.cc: connecting, control messages, failing and leaving.
  void OpenEdge(Edge& edge, const PeerAddress& address);
  void ReportIfReady(Edge& edge);
  void SendControl(Edge& edge, Control type, absl::string_view text);
  void EndControlSend(ControlSend& send);
  void PostControlReceive(ControlReceive& receive);
  void EndControlReceive(ControlReceive& receive, ucs_status_t status,
                         const ucp_tag_recv_info_t& info);
  void HandleControl(const ControlMessage& message);
  void FailEdge(Edge& edge, const absl::Status& failure);
  void HandleBye(Edge& edge, const std::string& reason);
  void CancelReceives(Edge& edge);
  void CloseEndpoint(Edge& edge);
  void CheckLives();
  void HandleEnd(Edge& edge, absl::string_view what);
  bool MayEnd();
  void End();
  void DropUnmatched();
  bool Settle(Edge& edge, absl::Time now);
  bool SettleAll();
  static void OnControlSent(void* request, ucs_status_t status, void* user_data);
  static void OnControlReceived(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                                void* user_data);
  static void OnEndpointError(void* user_data, ucp_ep_h endpoint, ucs_status_t status);

  const TransportIdentity identity_;
  std::unique_ptr<UcxWorker> worker_;  // Null after End.
  std::unique_ptr<LifeLine> life_;
  EdgeReport report_;
  absl::Status abort_status_;
  absl::Time end_by_ = absl::InfiniteFuture();
  bool alone_ = false;  // All peers had parted when Progress was last called.
  std::map<int, Edge> edges_;
  bool unsettled_ = false;  // Some edge has an error or a time set.
  absl::Time check_lives_at_ = absl::InfinitePast();

  std::set<int> early_hellos_;  // From devices we are not connected to yet.
  std::map<int, std::string> early_byes_;
  std::list<ControlSend> control_sends_;
  std::vector<std::unique_ptr<ControlReceive>> control_receives_;
  std::vector<ControlReceive*> to_post_;
  std::vector<ControlMessage> inbox_;
  std::list<Pending> finished_;   // Wait for their `done` to be called.
  std::list<Pending> abandoned_;  // UCX may still refer to them.
};

}  // namespace stagewright
