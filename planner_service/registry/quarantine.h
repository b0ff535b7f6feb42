// Devices that fail again and again are kept from jobs for a while.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace stagewright {

// A device that failed so often within so long is kept from jobs for so long: the first time, then
// twice as long each time, up to the longest. What it did is forgotten when it has not failed for
// so long since.
inline constexpr int kFailuresToQuarantine = 3;
// The same of one that peers did not reach, which does not depend on the job.
inline constexpr int kGapsToQuarantine = 2;
inline constexpr absl::Duration kFailuresWithin = absl::Minutes(10);
inline constexpr absl::Duration kQuarantineLasts = absl::Minutes(5);
inline constexpr absl::Duration kLongestQuarantine = absl::Hours(1);
inline constexpr absl::Duration kForgottenAfter = absl::Hours(1);

// By names that stay when a worker comes back. Not thread-safe.
class Quarantine {
 public:
  struct Entry {
    std::vector<absl::Time> failures;  // Ascending; those that count.
    std::string why;                   // The last one.
    absl::Time until = absl::InfinitePast();
    absl::Time behaves_since = absl::InfinitePast();  // Its last failure, or the end of quarantine.
    int times = 0;                                    // How often it was in quarantine.
  };

  // The device failed a job, which counts together with failures before it, `enough` of them.
  void NoteFailure(const std::string& device, const std::string& why, absl::Time now,
                   int enough = kFailuresToQuarantine);
  // Forgets its failures.
  void Forgive(const std::string& device) { entries_.erase(device); }
  // Forgets what no longer counts.
  void Expire(absl::Time now);
  // The device's entry while no job may have it; else null.
  const Entry* Find(const std::string& device) const;

 private:
  std::map<std::string, Entry> entries_;
};

}  // namespace stagewright
