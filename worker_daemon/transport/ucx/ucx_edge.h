// What a UcxEngine keeps of each peer, of operations and of control messages. Plain data, used by
// the engine's one thread.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker_daemon/transport/transport.h"
#include "worker_daemon/transport/ucx/life_line.h"
#include "worker_daemon/transport/ucx/process_watch.h"

namespace stagewright {

class UcxEngine;

struct UcxOperation {
  bool is_send = false;
  int peer = 0;
  Tag tag;
  void* data = nullptr;  // Not written to by sends.
  size_t bytes = 0;
  Transport::Done done;
};

// What a control message is about; stands in the channel field of its tag.
enum class UcxControl : uint32_t { kHello = 0, kHelloAnswer = 1, kBye = 2, kByeAnswer = 3 };

// An operation and where it is.
struct UcxPending {
  UcxEngine* engine = nullptr;
  UcxOperation operation;
  absl::Status result;
  void* request = nullptr;
  std::list<UcxPending>* list = nullptr;  // Where it is: an edge's, or one of the engine's.
  std::list<UcxPending>::iterator position;
};

// The connection to one peer. Its states, and what leads from one to the next:
//
//   opened ------------------> ready -------------------> failed -------------> parted -> closed
//          greeted, answered         error, bye, or end          at close_at
//
// An edge that is not ready yet fails alike. It is closed at once where UCX told an error, and over
// TCP not before that. At abandon_at, some time after it is closed, what is pending is given up.
struct UcxEdge {
  UcxEngine* engine = nullptr;
  int device = 0;
  ucp_ep_h endpoint = nullptr;
  bool greeted = false;   // Their hello is in.
  bool answered = false;  // Our hello has reached them.
  bool reported = false;  // The owner knows that the edge is ready or has failed.
  bool left = false;      // The failure is a bye: what was sent before it can still be received.
  bool parted = false;    // Neither end waits for a word of the other any more.
  absl::Status failure;
  std::unique_ptr<ProcessWatch> process;  // Null where we cannot watch it, and once it ended.
  std::unique_ptr<LifeWatch> life;        // Null where we cannot watch it, and once it ended.
  std::optional<ucs_status_t> error;      // What UCX told and we have not yet acted upon.
  std::optional<absl::Time> close_at;     // When to part, and close the endpoint if we may.
  std::optional<absl::Time> abandon_at;
  std::list<UcxPending> pending;
};

// Control messages: on their way, expected, and arrived.
struct UcxControlSend {
  UcxEdge* edge = nullptr;
  UcxControl type = UcxControl::kHello;
  std::string text;
  std::list<UcxControlSend>::iterator position;
};
struct UcxControlReceive {
  static constexpr size_t kBytes = 256;
  UcxEngine* engine = nullptr;
  bool posted = false;
  void* request = nullptr;
  char bytes[kBytes];
};
struct UcxControlMessage {
  int from = 0;
  UcxControl type = UcxControl::kHello;
  std::string text;
};

}  // namespace stagewright
