#include "planner_service/queue/reservation.h"

#include <algorithm>
#include <limits>

namespace stagewright {
namespace {

// The earliest time by which `missing` units have come free.
absl::Time Earliest(int64_t missing, std::vector<Return> held, absl::Time now) {
  const auto time = [now](const Return& one) { return std::max(one.at.value_or(now), now); };
  std::sort(held.begin(), held.end(),
            [&](const Return& a, const Return& b) { return time(a) < time(b); });
  absl::Time earliest = now;
  for (const Return& one : held) {
    if (missing <= 0) break;
    missing -= one.units;
    earliest = time(one);
  }
  return earliest;
}

// What is over at least when `needed` units are first there, beside any of the reservations before.
// The returns of the least sum that suffices may be the first to come, and all are needed then.
int64_t LeastExcess(int64_t needed, const Pool& pool) {
  int64_t least = std::numeric_limits<int64_t>::max();
  int64_t sum = 0;
  for (int64_t before = 0; before <= pool.reserved.largest(); ++before) {
    if (!pool.reserved.Has(before)) continue;
    const int64_t missing = needed + before - pool.available;
    sum = std::max(sum, missing);
    while (sum <= pool.returns.largest() && !pool.returns.Has(sum)) ++sum;
    if (sum > pool.returns.largest()) break;  // So many cannot run at once.
    least = std::min(least, sum - missing);
  }
  return least == std::numeric_limits<int64_t>::max() ? 0 : least;
}

}  // namespace

void SubsetSums::Add(int64_t number, int64_t most) {
  if (number <= 0) return;
  const auto step = static_cast<size_t>(number);
  const auto limit = static_cast<size_t>(std::max<int64_t>(most, 0));
  has_.resize(std::max(has_.size(), std::min(has_.size() - 1 + step, limit) + 1));
  for (size_t sum = has_.size() - 1; sum >= step; --sum) has_[sum] = has_[sum] || has_[sum - step];
}

void Hold(const Return& units, Pool& pool) {
  pool.held.push_back(units);
  pool.returns.Add(units.units);
}

Reservation Reserve(const WaitingJob& job, absl::Time now, Pool& pool) {
  Reservation reservation;
  reservation.job = job.number;
  reservation.priority = job.priority;
  reservation.account = pool.account;
  reservation.soon = job.least + pool.all_reserved <= pool.available;
  reservation.start = Earliest(job.least - pool.available, pool.held, now);
  reservation.extra = LeastExcess(job.least, pool);
  // So many cannot come free, and none of it: what is reserved beyond makes no difference.
  pool.reserved.Add(job.least, pool.available + pool.returns.largest());
  pool.all_reserved += job.least;
  return reservation;
}

std::optional<int64_t> LeftFor(const WaitingJob& job, const Reservation& reservation,
                               absl::Time now) {
  if (reservation.account.has_value() && *reservation.account != job.account) return std::nullopt;
  // It would have to go again in moments if the other one is about to start.
  if (job.preemptible && job.priority < reservation.priority && !reservation.soon)
    return std::nullopt;
  if (job.takes.has_value() && now + *job.takes <= reservation.start) return std::nullopt;
  return reservation.extra;
}

}  // namespace stagewright
