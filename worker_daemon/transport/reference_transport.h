// How devices of one process hand objects to one another.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright {

// Messages between devices of one process that carry an object of the sender itself instead of a
// copy of some bytes. Life, matching, completion and failure are those of the Transport that it
// belongs to. The object may be used by both ends from then on: who hands over a tensor does not
// write to it any more.
class ReferenceTransport {
 public:
  using Object = std::shared_ptr<const void>;
  using Received = std::function<void(absl::StatusOr<Object>)>;

  virtual ~ReferenceTransport() = default;

  // The receiver casts the object to the type that its program says. `done` of a send may come from
  // a thread of the peer's transport.
  virtual void SendObject(int peer, Tag tag, Object object, Transport::Done done) = 0;
  virtual void ReceiveObject(int peer, Tag tag, Received done) = 0;
};

}  // namespace stagewright
