// Profiles for those who must not wait for the store: what jobs measured is written, and what is
// known is read again, by a thread of its own.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/cost/measured/operator_profile.h"
#include "planner_service/profiles/profile_store.h"

namespace stagewright {

// Thread-safe.
class ProfileKeeper {
 public:
  static constexpr size_t kMostQueued = 64;

  // The store outlives it. At its end what is queued is waited for so long, in all.
  explicit ProfileKeeper(ProfileStore* profiles, absl::Duration patience = absl::Seconds(3));
  // Drops what has not been written by then, and the log says of how many jobs. A call of the store
  // that has begun is waited for as long as the store lets it take.
  ~ProfileKeeper();
  ProfileKeeper(const ProfileKeeper&) = delete;
  ProfileKeeper& operator=(const ProfileKeeper&) = delete;

  // The store is told what the job measured, in the order of the calls. What it does not take, and
  // what is more than kMostQueued, is lost, and the log says so: it is a help only.
  void Keep(const std::string& job, OperatorProfile profile);
  // ProfileStore::Known. If the store has another state perhaps, it is asked soon.
  absl::StatusOr<std::shared_ptr<const OperatorProfile>> Known() const;

 private:
  struct Piece {
    std::string job;
    OperatorProfile profile;
  };

  void Run();

  ProfileStore* const profiles_;
  const absl::Duration patience_;
  mutable absl::Mutex mutex_;
  std::deque<Piece> queue_ ABSL_GUARDED_BY(mutex_);
  mutable bool read_ ABSL_GUARDED_BY(mutex_) = false;  // The store is to be asked.
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace stagewright
