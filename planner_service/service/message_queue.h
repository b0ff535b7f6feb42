// The outgoing half of a streaming reactor: messages wait here while one is being written.
#pragma once

#include <grpcpp/support/status.h>

#include <deque>
#include <optional>
#include <utility>

#include "absl/synchronization/mutex.h"

namespace stagewright {

// Reactor provides StartWrite(const Message*) and Finish(grpc::Status). All calls are thread-safe;
// none calls back into the reactor's own code.
template <typename Reactor, typename Message>
class MessageQueue {
 public:
  explicit MessageQueue(Reactor* reactor) : reactor_(reactor) {}

  // False if the stream is closed. With `replace_waiting`, messages not yet being written are
  // dropped: only the latest state matters.
  bool Push(Message message, bool replace_waiting = false) {
    absl::MutexLock lock(&mutex_);
    if (closed_) return false;
    if (replace_waiting) waiting_.clear();
    waiting_.push_back(std::move(message));
    WriteNext();
    return true;
  }

  // Writes what waits, then finishes the stream. Later pushes are refused.
  void Close(grpc::Status status) {
    absl::MutexLock lock(&mutex_);
    if (closed_) return;
    closed_ = true;
    final_ = std::move(status);
    WriteNext();
  }

  // Drops what waits and finishes the stream.
  void Abort(grpc::Status status) {
    absl::MutexLock lock(&mutex_);
    if (closed_ && waiting_.empty() && !writing_.has_value()) return;
    waiting_.clear();
    closed_ = true;
    final_ = std::move(status);
    WriteNext();
  }

  // From the reactor's OnWriteDone.
  void OnWriteDone(bool ok) {
    absl::MutexLock lock(&mutex_);
    writing_.reset();
    if (!ok) {
      waiting_.clear();
      if (!closed_) final_ = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the stream broke");
      closed_ = true;
    }
    WriteNext();
  }

 private:
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_.has_value() || finished_) return;
    if (!waiting_.empty()) {
      writing_ = std::move(waiting_.front());
      waiting_.pop_front();
      reactor_->StartWrite(&*writing_);
    } else if (closed_) {
      finished_ = true;
      reactor_->Finish(final_);
    }
  }

  Reactor* const reactor_;
  absl::Mutex mutex_;
  std::deque<Message> waiting_ ABSL_GUARDED_BY(mutex_);
  std::optional<Message> writing_ ABSL_GUARDED_BY(mutex_);
  grpc::Status final_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace stagewright
