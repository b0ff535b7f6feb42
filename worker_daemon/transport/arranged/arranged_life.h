// Where an ArrangedTransport is in its life.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace stagewright {

// One value says it all, and why. It only goes forwards:
//
//   new -> joining -> joined        Connect; one that fails for lack of time stays at joining
//   any of these -> draining        a peer was lost: what ends in time is still done
//   any of these -> failing         the mover broke; all operations are to fail now
//   draining, failing -> failed     they have, and new ones do
//   any of these -> aborting        Abort: all operations are to fail now, with its reason
//   aborting, failed -> aborted     they have, and new ones do
//   aborted -> stopped              the thread is to end
class ArrangedLife {
 public:
  // Connect begins.
  void Join();
  // Connect ended well. REQUIRES: joining.
  void SetJoined();
  // A peer was lost. No effect once there is a failure.
  void Lose(const absl::Status& why, absl::Time drained_at);
  // The mover broke. A failure that is there already remains the reason.
  void Break(const absl::Status& why);
  // Its reason counts from now on. False, and of no effect, after the first call.
  bool Abort(const absl::Status& why);
  // All operations have failed.
  void SetFailed();
  // REQUIRES: aborted.
  void Stop();

  // Why new operations fail; OK while they do not.
  const absl::Status& failure() const { return failure_; }
  // Connect is under way, or ended well, and nothing has failed.
  bool joining_or_joined() const { return state_ == State::kJoining || state_ == State::kJoined; }
  // Connect is over, unless something failed during it.
  bool past_joining() const { return state_ != State::kNew && state_ != State::kJoining; }
  // What is under way may still end.
  bool Drains(absl::Time now) const { return state_ == State::kDraining && now < drained_at_; }
  // All operations are to fail now. `idle`: there is none.
  bool MustFail(absl::Time now, bool idle) const;
  // It drains, or is to fail.
  bool failing() const;
  // The operations have failed.
  bool failed() const;
  bool aborted() const { return state_ == State::kAborted; }
  bool stopped() const { return state_ == State::kStopped; }

 private:
  enum class State {
    kNew,
    kJoining,
    kJoined,
    kDraining,
    kFailing,
    kFailed,
    kAborting,
    kAborted,
    kStopped,
  };

  State state_ = State::kNew;
  absl::Status failure_;
  absl::Time drained_at_ = absl::InfinitePast();
};

}  // namespace stagewright
