// What a job that cannot start yet keeps for itself: those behind it may take only what does not
// delay it, whatever order the jobs end in that hold devices now.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "planner_service/queue/queue_state.h"

namespace stagewright {

// The sums that some of the numbers have, for any choice of some.
class SubsetSums {
 public:
  // Sums above `most` are left out, now and later. O(largest sum).
  void Add(int64_t number, int64_t most = std::numeric_limits<int64_t>::max());
  bool Has(int64_t sum) const { return sum <= largest() && has_[static_cast<size_t>(sum)]; }
  int64_t largest() const { return static_cast<int64_t>(has_.size()) - 1; }

 private:
  std::vector<bool> has_ = {true};
};

// Units that come free together: a job's devices, and when, if that is known. If not, it may be at
// any moment.
struct Return {
  int64_t units = 0;
  std::optional<absl::Time> at;
};

// Units that jobs share: all devices, or an account's quota of them.
struct Pool {
  std::optional<Account> account;  // The quota is this one's; none: it is of all devices.
  int64_t available = 0;           // Now, or in moments.
  std::vector<Return> held;        // They come later.
  SubsetSums returns;              // As of `held`.
  SubsetSums reserved;             // By the reservations so far, as far as the pool has them.
  int64_t all_reserved = 0;        // The sum of them all.
};

// A job holds these units, which are not among the available ones.
void Hold(const Return& units, Pool& pool);

struct Reservation {
  int64_t job = 0;
  int32_t priority = 0;
  std::optional<Account> account;  // Pool::account.
  bool soon = false;               // It waits for nothing that jobs still use.
  absl::Time start;                // It may be able to start then, but not before.
  int64_t extra = 0;               // Units that it leaves over, in whatever order they come free.
};

// For a job that needs so many units, behind those that reserved some before it; they may run at
// once or one after the other. REQUIRES: the pool has as many. O(held log held + the pool's units),
// however many reserved some before.
Reservation Reserve(const WaitingJob& job, absl::Time now, Pool& pool);

// How many units of it a job may take at most without delaying the reservation; absent: any
// number, because it gives them back in time, or when it is asked to.
std::optional<int64_t> LeftFor(const WaitingJob& job, const Reservation& reservation,
                               absl::Time now);

}  // namespace stagewright
