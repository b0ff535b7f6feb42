// Waiting for an operation of a Transport, with a deadline that is always honoured.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright {

// The end of one operation. Pass Callback() as its `done`, once; then Wait.
class Completion {
 public:
  Completion() : state_(std::make_shared<State>()) {}

  // The callback keeps the state alive, so a Completion may go before it is called.
  Transport::Done Callback() const;

  // Whether the operation has ended.
  bool done() const;

  // Waits for the operation and returns its status. When the deadline passes first, aborts
  // `transport` with DEADLINE_EXCEEDED and waits for the operation to end, which it then does
  // promptly: on return the memory of the operation is free in every case.
  absl::Status Wait(Transport& transport, absl::Time deadline) const;

 private:
  struct State {
    absl::Mutex mutex;
    bool done ABSL_GUARDED_BY(mutex) = false;
    absl::Status status ABSL_GUARDED_BY(mutex);
  };
  std::shared_ptr<State> state_;
};

// Send and Receive as blocking calls.
absl::Status SendAndWait(Transport& transport, int peer, Tag tag, const void* data, size_t bytes,
                         absl::Time deadline);
absl::Status ReceiveAndWait(Transport& transport, int peer, Tag tag, void* data, size_t bytes,
                            absl::Time deadline);

}  // namespace stagewright
