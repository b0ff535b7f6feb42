#include "worker_daemon/transport/arranged/arranged_life.h"

#include "common/base/check.h"

namespace stagewright {

void ArrangedLife::Join() {
  CHECK(state_ == State::kNew);
  state_ = State::kJoining;
}

void ArrangedLife::SetJoined() {
  CHECK(state_ == State::kJoining);
  state_ = State::kJoined;
}

void ArrangedLife::Lose(const absl::Status& why, absl::Time drained_at) {
  if (!failure_.ok()) return;
  failure_ = why;
  state_ = State::kDraining;
  drained_at_ = drained_at;
}

void ArrangedLife::Break(const absl::Status& why) {
  if (failure_.ok()) failure_ = why;
  if (state_ < State::kFailing) state_ = State::kFailing;
}

bool ArrangedLife::Abort(const absl::Status& why) {
  if (state_ >= State::kAborting) return false;
  failure_ = why;
  state_ = state_ == State::kFailed ? State::kAborted : State::kAborting;
  return true;
}

void ArrangedLife::SetFailed() {
  state_ = state_ == State::kAborting ? State::kAborted : State::kFailed;
}

void ArrangedLife::Stop() {
  CHECK(aborted());
  state_ = State::kStopped;
}

bool ArrangedLife::MustFail(absl::Time now, bool idle) const {
  return state_ == State::kFailing || state_ == State::kAborting ||
         (state_ == State::kDraining && (now >= drained_at_ || idle));
}

bool ArrangedLife::failing() const {
  return state_ == State::kDraining || state_ == State::kFailing || state_ == State::kAborting;
}

bool ArrangedLife::failed() const {
  return state_ == State::kFailed || state_ == State::kAborted || state_ == State::kStopped;
}

}  // namespace stagewright
