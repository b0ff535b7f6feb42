#include "worker_daemon/transport/completion.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock/steady_wait.h"

namespace stagewright {

Transport::Done Completion::Callback() const {
  return [state = state_](absl::Status status) {
    absl::MutexLock lock(&state->mutex);
    state->done = true;
    state->status = std::move(status);
  };
}

bool Completion::done() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->done;
}

absl::Status Completion::Wait(Transport& transport, absl::Time deadline) const {
  transport.Help([this] { return done(); });
  {
    absl::MutexLock lock(&state_->mutex);
    if (AwaitUntil(state_->mutex, absl::Condition(&state_->done), deadline)) {
      return state_->status;
    }
  }
  transport.Abort(absl::DeadlineExceededError(
      absl::StrCat("device ", transport.device(), ": a transfer did not end in time")));
  absl::MutexLock lock(&state_->mutex);
  state_->mutex.Await(absl::Condition(&state_->done));
  return state_->status;
}

absl::Status SendAndWait(Transport& transport, int peer, Tag tag, const void* data, size_t bytes,
                         absl::Time deadline) {
  Completion completion;
  transport.Send(peer, tag, data, bytes, completion.Callback());
  return completion.Wait(transport, deadline);
}

absl::Status ReceiveAndWait(Transport& transport, int peer, Tag tag, void* data, size_t bytes,
                            absl::Time deadline) {
  Completion completion;
  transport.Receive(peer, tag, data, bytes, completion.Callback());
  return completion.Wait(transport, deadline);
}

}  // namespace stagewright
