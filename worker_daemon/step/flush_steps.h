// After which steps the pipeline of an asynchronous program runs empty, so that its state can be
// saved. All devices of the job must empty it after the same steps: one that goes on would wait for
// messages that another one does not send.
//
// Steps that the job's policy names are known beforehand. Any other is offered to all workers
// first; a device does not come so far that it could not keep to it any more before the offer is
// settled or withdrawn. It is settled once all workers have agreed, so that none is too late.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "absl/synchronization/mutex.h"
#include "common/base/ids.h"

namespace stagewright {

// For the devices of one worker. Thread-safe.
class FlushSteps {
 public:
  // Known beforehand: after every so many steps; 0: none.
  explicit FlushSteps(int64_t every) : every_(every) {}

  // `device` is about to begin `step`, from 0: the smallest number of steps done, above `step`,
  // after which it empties its pipeline. When this returns, no number up to `step` + 2 changes any
  // more: the transfers of the step after this one begin with it, as those of one that is followed
  // by another or not. Waits while such a number is offered.
  int64_t Next(DeviceId device, int64_t step) ABSL_LOCKS_EXCLUDED(mutex_);

  // False: some device has come too far, or nothing is waited for. Replaces an offer before it.
  bool Offer(int64_t steps) ABSL_LOCKS_EXCLUDED(mutex_);
  // Everybody agreed to it. REQUIRES: it was offered, or is told again.
  void Settle(int64_t steps) ABSL_LOCKS_EXCLUDED(mutex_);
  // Nothing comes of an open offer.
  void Withdraw() ABSL_LOCKS_EXCLUDED(mutex_);
  // The run is over: from now on nobody waits, and no offer is taken.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

  // The newest that was settled; 0: none was.
  int64_t settled() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const int64_t every_;
  mutable absl::Mutex mutex_;
  int64_t offered_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: none is open.
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<int64_t> settled_ ABSL_GUARDED_BY(mutex_);
  std::map<DeviceId, int64_t> final_ ABSL_GUARDED_BY(mutex_);  // Up to which nothing changes.
};

}  // namespace stagewright
