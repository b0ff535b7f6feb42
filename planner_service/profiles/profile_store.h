// Measurements of operators in the store, one entry each, by kind of device, software and
// signature.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/synchronization/mutex.h"
#include "common/base/status.h"
#include "common/cost/measured/operator_profile.h"
#include "planner_service/store/store.h"

namespace stagewright {

// Thread-safe; the store outlives it. Nobody else writes them: a planner has one of these, and one
// that comes to lead several planners begins with another one, whose writes alone the store takes.
class ProfileStore {
 public:
  explicit ProfileStore(Store* store) : store_(store) {}

  // Replaces what is known of the same operators. What was measured in jobs is kept apart, so that
  // it never takes the place of what was measured by itself, and adds to what jobs measured of the
  // operator at other numbers of samples. All or nothing. O(all that is known). REQUIRES:
  // Check(profile).
  absl::Status Write(const OperatorProfile& profile);
  // What was measured by itself, and of other operators what was measured in jobs. DATA_LOSS if an
  // entry is damaged. O(1): the store is asked the first time, and again after an error that may
  // pass and a write of which it did not say whether it was done.
  absl::StatusOr<std::shared_ptr<const OperatorProfile>> Read() const;
  // As Read, of what is in memory: neither the store nor who asks it is waited for. While the store
  // may have another state, as after a write in doubt, it is the last one that it was known to
  // have; UNAVAILABLE if there was none. O(1).
  absl::StatusOr<std::shared_ptr<const OperatorProfile>> Known() const;
  // Whether Read would not have to ask the store.
  bool current() const;
  // Another one after each Write of what was measured by itself. What is read is at least as new as
  // the version was before.
  int64_t version() const { return version_; }

 private:
  // What the store has.
  struct Entries {
    OperatorProfile of_jobs;
    OperatorProfile known;  // As Read says.
  };
  using Copy = absl::StatusOr<std::shared_ptr<const Entries>>;
  Copy ReadStore() const;
  static absl::StatusOr<std::shared_ptr<const OperatorProfile>> Shown(const Copy& copy);
  void SetCopy(std::optional<Copy> copy) const;
  // The store's if there is none; never of a time while it was being written.
  Copy TakeCopy() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(writing_);
  // What jobs measured of it before, if it is known. Errors of a store that
  // does not answer, which is not asked once for each operator.
  absl::StatusOr<std::optional<MeasuredOperator>> Older(const Copy& copy,
                                                        const ProfiledDevice& device,
                                                        const std::string& signature) const;

  Store* const store_;
  mutable absl::Mutex writing_;  // For as long as the store is asked or told; taken before mutex_.
  mutable absl::Mutex mutex_;
  mutable std::optional<Copy> copy_ ABSL_GUARDED_BY(mutex_);  // Empty: the store is to be asked.
  mutable Copy last_ ABSL_GUARDED_BY(mutex_) =                // The last one that there was.
      absl::UnavailableError("what was measured has not been read from the store yet");
  std::atomic<int64_t> version_{0};
};

}  // namespace stagewright
