// The outgoing half of a streaming reactor: messages wait here while one is being written.
#pragma once

#include <grpcpp/support/status.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "absl/synchronization/mutex.h"

namespace stagewright {

// Reactor provides StartWrite(const Message*) and Finish(grpc::Status). All calls are thread-safe;
// none calls back into the reactor's own code.
template <typename Reactor, typename Message>
class MessageQueue {
 public:
  // For readers that may leave messages unread: more than `most` bytes never wait, besides the
  // message that is being written. `give_up` makes that write end, as a context's TryCancel does.
  struct Bound {
    size_t most = 0;
    std::function<size_t(const Message&)> size;
    std::function<void()> give_up;
  };

  explicit MessageQueue(Reactor* reactor) : reactor_(reactor) {}
  MessageQueue(Reactor* reactor, Bound bound) : reactor_(reactor), bound_(std::move(bound)) {}

  // False if the stream is closed, or is closed now since too much waits. With `replace_waiting`,
  // messages not yet being written are dropped: only the latest state matters.
  bool Push(Message message, bool replace_waiting = false) {
    absl::MutexLock lock(&mutex_);
    if (closed_) return false;
    if (replace_waiting) DropWaiting();
    waiting_bytes_ += Size(message);
    waiting_.push_back(std::move(message));
    WriteNext();
    if (!bound_.has_value() || waiting_bytes_ <= bound_->most) return true;
    DropWaiting();
    closed_ = true;
    final_ = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "the stream is not read");
    bound_->give_up();
    return false;
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
    DropWaiting();
    closed_ = true;
    final_ = std::move(status);
    WriteNext();
  }

  // From the reactor's OnWriteDone.
  void OnWriteDone(bool ok) {
    absl::MutexLock lock(&mutex_);
    writing_.reset();
    if (!ok) {
      DropWaiting();
      if (!closed_) final_ = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the stream broke");
      closed_ = true;
    }
    WriteNext();
  }

 private:
  size_t Size(const Message& message) const {
    return bound_.has_value() ? bound_->size(message) : 0;
  }
  void DropWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    waiting_.clear();
    waiting_bytes_ = 0;
  }

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_.has_value() || finished_) return;
    if (!waiting_.empty()) {
      writing_ = std::move(waiting_.front());
      waiting_.pop_front();
      waiting_bytes_ -= Size(*writing_);
      reactor_->StartWrite(&*writing_);
    } else if (closed_) {
      finished_ = true;
      reactor_->Finish(final_);
    }
  }

  Reactor* const reactor_;
  const std::optional<Bound> bound_;
  absl::Mutex mutex_;
  std::deque<Message> waiting_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<Message> writing_ ABSL_GUARDED_BY(mutex_);
  grpc::Status final_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace stagewright
