// What is known of one peer.
#pragma once

#include <ucp/api/ucp.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker_daemon/transport/ucx/peer_watch.h"
#include "worker_daemon/transport/ucx/ucx_endpoint.h"

namespace stagewright {

// The connection to one peer. Its states, and what leads from one to the next:
//
//   opened ------------------> ready -------------------> failed -------------> parted -> closed
//          greeted, answered         error, bye, or end          at close_at
//
// An edge that is not ready yet fails alike. It is closed at once where UCX told an error, and over
// TCP not before that. At abandon_at, some time after it is closed, what is pending is given up.
struct UcxEdge {
  int device = 0;
  UcxEndpoint endpoint;
  PeerWatch watch;
  std::string challenge;  // What our hello asks, and their answer repeats.
  std::string question;   // What theirs asks.
  bool greeted = false;   // Their hello is in.
  bool answered = false;  // Our hello has reached them.
  bool reported = false;  // The owner knows that the edge is ready or has failed.
  bool left = false;      // The failure is a bye: what was sent before it can still be received.
  bool parted = false;    // Neither end waits for a word of the other any more.
  absl::Status failure;
  std::optional<ucs_status_t> error;   // What UCX told and we have not yet acted upon.
  std::optional<absl::Time> close_at;  // When to part, and close the endpoint if we may.
  std::optional<absl::Time> abandon_at;

  // When something is to be done about it: InfinitePast for at once, InfiniteFuture for never.
  absl::Time due_at() const;
};

}  // namespace stagewright
