#include "planner_service/queue/place_jobs.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "planner_service/queue/named_devices.h"
#include "planner_service/queue/reservation.h"
#include "planner_service/queue/victims.h"

namespace stagewright {
namespace {

// One pass over the waiting jobs in their order, with what it has decided so far.
struct Pass {
  Pass(const QueueState& queue, const QueueRules& quota_rules)
      : state(queue),
        rules(quota_rules),
        holding(queue.holding),
        devices(queue.devices),
        named(queue.named) {}

  const QueueState& state;
  const QueueRules& rules;
  std::vector<HoldingJob> holding;  // By number; those that start are added.
  DeviceCounts devices;             // `free` is what is left of it.
  NamedDevices named;               // They are counted in it, too.
  int64_t total = 0;                // Devices that jobs may have, whoever holds them now.
  Pool pool;                        // The devices.
  std::map<Account, Pool> quotas;
  std::map<Account, int64_t> in_use;       // By account.
  std::map<Account, int64_t> shares;       // In use or reserved, by account.
  std::vector<Reservation> reservations;   // In the order of the queue.
  int64_t promised = 0;                    // Devices for jobs that others were stopped for.
  std::map<Account, int64_t> promised_to;  // The same, by account.
  std::set<Account> over_quota;            // Those whose jobs wait for nothing but their quota.
  QueueDecision decision;
};

bool Leaves(const HoldingJob& job) { return job.room_for.has_value(); }

// What is available and held, from the start; reservations stay.
void FillPools(Pass& pass) {
  const auto clear = [](int64_t available, Pool& pool) {
    pool.available = available;
    pool.held.clear();
    pool.returns = SubsetSums();
  };
  clear(pass.devices.free + pass.devices.ending, pass.pool);
  for (auto& [account, pool] : pass.quotas) clear(*pass.rules.QuotaOf(account), pool);
  for (const HoldingJob& job : pass.holding) {
    const auto quota = pass.quotas.find(job.account);
    if (quota != pass.quotas.end() && !Leaves(job)) {
      quota->second.available -= job.devices;
      Hold({job.devices, job.ends}, quota->second);
    }
    if (Leaves(job)) {
      pass.pool.available += job.returns;
    } else {
      Hold({job.returns, job.ends}, pass.pool);
    }
  }
}

void Promise(Pass& pass, const WaitingJob& job, int64_t devices) {
  pass.promised += devices;
  pass.promised_to[job.account] += devices;
}

Pass Begin(const QueueState& state, const QueueRules& rules) {
  Pass pass(state, rules);
  std::sort(pass.holding.begin(), pass.holding.end(),
            [](const HoldingJob& a, const HoldingJob& b) { return a.number < b.number; });
  std::set<int64_t> waiting;
  for (const WaitingJob& job : state.waiting) {
    waiting.insert(job.number);
    if (job.room_made) Promise(pass, job, job.least);
    if (rules.QuotaOf(job.account).has_value()) pass.quotas[job.account].account = job.account;
  }
  pass.total = state.devices.free + state.devices.ending;
  for (HoldingJob& job : pass.holding) {
    pass.in_use[job.account] += job.devices;
    pass.total += job.returns;
    if (!Leaves(job) || waiting.contains(*job.room_for)) continue;
    pass.decision.spared.push_back(job.number);
    job.room_for.reset();
  }
  pass.shares = pass.in_use;
  FillPools(pass);
  return pass;
}

// Those of one priority, but apart those that room was made for: by account, then by number, the
// last one first.
using Class = std::map<Account, std::vector<const WaitingJob*>>;

using Classes = std::map<std::pair<int32_t, bool>, Class, std::greater<>>;

Classes ClassesOf(const QueueState& state) {
  Classes classes;
  for (const WaitingJob& job : state.waiting)
    classes[{job.priority, job.room_made}][job.account].push_back(&job);
  for (auto& [rank, accounts] : classes) {
    for (auto& [account, jobs] : accounts) {
      std::sort(jobs.begin(), jobs.end(),
                [](const WaitingJob* a, const WaitingJob* b) { return a->number > b->number; });
    }
  }
  return classes;
}

// Takes the next one of the class; null: there is none.
const WaitingJob* TakeNext(std::map<Account, int64_t>& shares, Class& accounts) {
  std::vector<const WaitingJob*>* next = nullptr;
  for (auto& [account, jobs] : accounts) {
    if (jobs.empty()) continue;
    const auto place = [&](const std::vector<const WaitingJob*>& of) {
      return std::tuple(shares[of.back()->account], of.back()->number);
    };
    if (next == nullptr || place(jobs) < place(*next)) next = &jobs;
  }
  if (next == nullptr) return nullptr;
  const WaitingJob* job = next->back();
  next->pop_back();
  return job;
}

// As many units as the reservations leave to the job; `behind` is the one that leaves the fewest.
int64_t LeftForJob(const Pass& pass, const WaitingJob& job, int64_t most,
                   const Reservation** behind) {
  for (const Reservation& reservation : pass.reservations) {
    const std::optional<int64_t> left = LeftFor(job, reservation, pass.state.now);
    if (!left.has_value() || *left >= most) continue;
    most = *left;
    *behind = &reservation;
  }
  return most;
}

// `lent` of the devices are kept by jobs before, and are theirs when they come back.
void Start(Pass& pass, const WaitingJob& job, int64_t devices, int64_t lent) {
  for (Reservation& reservation : pass.reservations) {
    if (LeftFor(job, reservation, pass.state.now).has_value()) reservation.extra -= devices;
  }
  // What others were to be stopped for.
  for (HoldingJob& one : pass.holding) {
    if (one.room_for != job.number) continue;
    one.room_for.reset();
    pass.decision.spared.push_back(one.number);
  }
  HoldingJob started = {job.number, job.account,    job.priority, /*preemptible=*/false,
                        devices,    devices - lent, {},           {}};
  if (job.takes.has_value()) started.ends = pass.state.now + *job.takes;
  pass.holding.push_back(started);
  std::vector<std::string> named = job.named;
  if (named.empty()) {
    const int64_t others = pass.devices.free - pass.named.free();
    named = pass.named.TakeFree(job.number, std::max<int64_t>(devices - lent - others, 0));
    for (std::string& name : pass.named.TakeLent(job, lent)) named.push_back(std::move(name));
  } else {
    pass.named.TakeOwn(job);
  }
  pass.devices.free -= devices - lent;
  pass.devices.kept -= lent;
  pass.in_use[job.account] += devices;
  pass.shares[job.account] += devices;
  FillPools(pass);
  pass.decision.starts.push_back({job.number, devices, std::move(named)});
}

void Stop(Pass& pass, int64_t victim, int64_t room_for) {
  pass.decision.preemptions.push_back({victim, room_for});
  for (HoldingJob& one : pass.holding) {
    if (one.number == victim) one.room_for = room_for;
  }
}

// It may be stopped for the job. One that waits for its quota, and is before this one, would get
// the devices of a victim of that account.
bool MayStop(const Pass& pass, const HoldingJob& victim, const WaitingJob& job) {
  return victim.preemptible && !Leaves(victim) && victim.returns > 0 &&
         victim.priority < job.priority && !pass.over_quota.contains(victim.account);
}

// The same as Preempt for a job that names devices: all that hold some are stopped, or none.
bool PreemptHolders(Pass& pass, const WaitingJob& job, const Pool* quota) {
  if (quota != nullptr && quota->available < job.least) return false;
  for (const Reservation& reservation : pass.reservations) {
    if (!reservation.soon && reservation.account.value_or(job.account) == job.account) return false;
  }
  const std::optional<std::set<int64_t>> holders = pass.named.HoldersOf(job);
  if (!holders.has_value()) return false;
  std::vector<int64_t> victims;
  for (const HoldingJob& one : pass.holding) {
    if (!holders->contains(one.number) || one.room_for == job.number) continue;
    if (!MayStop(pass, one, job)) return false;
    victims.push_back(one.number);
  }
  for (const int64_t victim : victims) Stop(pass, victim, job.number);
  if (!victims.empty()) FillPools(pass);
  return true;
}

// Stops jobs for this one if it can start then. It can while others wait before it only if they are
// about to start, too: else they may have the devices.
bool Preempt(Pass& pass, const WaitingJob& job, const Pool* quota) {
  int64_t available = pass.pool.available;
  int64_t allowed = quota == nullptr ? available : quota->available;
  for (const Reservation& reservation : pass.reservations) {
    if (reservation.account.value_or(job.account) != job.account) continue;
    if (!reservation.soon) return false;
    int64_t& limited = reservation.account.has_value() ? allowed : available;
    limited = std::min(limited, reservation.extra);
  }
  const int64_t over = quota == nullptr ? 0 : std::max<int64_t>(0, job.least - allowed);
  const int64_t missing = std::max(job.least - available, over);
  if (missing <= 0) return true;
  std::vector<HoldingJob> candidates;
  for (const HoldingJob& one : pass.holding) {
    if (MayStop(pass, one, job) && (over == 0 || one.account == job.account))
      candidates.push_back(one);
  }
  const std::vector<int64_t> victims = FewestVictims(std::move(candidates), missing);
  for (const int64_t victim : victims) Stop(pass, victim, job.number);
  if (!victims.empty()) FillPools(pass);
  return !victims.empty();
}

void Queue(Pass& pass, const WaitingJob& job, WaitReason reason, std::string text) {
  const auto position = static_cast<int64_t>(pass.decision.queued.size()) + 1;
  pass.decision.queued.push_back({job.number, position, reason, std::move(text)});
}

// Where `first` leaves all that `second`, which is behind it, does: nobody behind both need look at
// that one.
bool Covers(const Reservation& first, const Reservation& second) {
  return first.account == second.account && first.soon == second.soon &&
         (first.soon || first.priority == second.priority) && first.start <= second.start &&
         first.extra <= second.extra;
}

void Add(Pass& pass, Reservation reservation) {
  const bool covered =
      std::any_of(pass.reservations.begin(), pass.reservations.end(),
                  [&](const Reservation& one) { return Covers(one, reservation); });
  if (!covered) pass.reservations.push_back(std::move(reservation));
}

// Nothing is free, nor are jobs stopped for those that are behind one that waits for devices in
// use: what they reserve makes no difference.
bool IsSettled(const Pass& pass) {
  return pass.devices.free <= 0 &&
         std::any_of(pass.reservations.begin(), pass.reservations.end(),
                     [](const Reservation& one) { return !one.account.has_value() && !one.soon; });
}

// The job counts as one that holds its devices from now on, and may end at any moment. While jobs
// that nobody stops hold some of them, it lends the others.
void Keep(Pass& pass, const WaitingJob& job) {
  const KeptDevices kept = pass.named.Keep(job);
  if (kept.free == 0 && kept.ending == 0 && kept.held.empty()) return;  // Others before have all.
  pass.devices.free -= kept.free;
  pass.devices.kept += kept.free;
  pass.devices.ending -= kept.ending;
  HoldingJob keeper = {job.number, job.account, job.priority, /*preemptible=*/false, 0, 0, {}, {}};
  keeper.returns = kept.free + kept.ending;
  bool lends = false;
  for (HoldingJob& one : pass.holding) {
    const auto held = kept.held.find(one.number);
    if (held == kept.held.end()) continue;
    const int64_t returns = std::min(one.returns, held->second);
    one.returns -= returns;
    keeper.returns += returns;
    lends = lends || !Leaves(one);
  }
  if (lends) pass.named.Lend(job);
  pass.holding.push_back(keeper);
  FillPools(pass);
}

// In the quota, too, if there is one; in it alone while the account's other jobs use it up.
void ReserveFor(Pass& pass, const WaitingJob& job, Pool* quota, bool quota_only) {
  pass.shares[job.account] += job.least;
  if (!job.named.empty() && !quota_only) Keep(pass, job);
  if (IsSettled(pass)) return;
  if (quota_only) pass.over_quota.insert(job.account);
  if (quota != nullptr) Add(pass, Reserve(job, pass.state.now, *quota));
  if (!quota_only && job.named.empty()) Add(pass, Reserve(job, pass.state.now, pass.pool));
}

// Jobs that are being stopped for this one.
std::vector<int64_t> LeavingFor(const Pass& pass, int64_t job) {
  std::vector<int64_t> leaving;
  for (const HoldingJob& one : pass.holding) {
    if (one.room_for == job) leaving.push_back(one.number);
  }
  return leaving;
}

// More than there are: those behind it leave it all, for its workers may be back at any moment.
void ReserveAll(Pass& pass, const WaitingJob& job) {
  Reservation all;
  all.job = job.number;
  all.priority = job.priority;
  all.start = pass.state.now;
  Add(pass, std::move(all));
  pass.shares[job.account] += job.least;
}

// `most` is what it could start with if it were not held back. REQUIRES: no more than there are in
// all are needed, nor than the quota has.
void Wait(Pass& pass, const WaitingJob& job, int64_t most, Pool* quota, const Reservation* behind) {
  const int64_t in_use = pass.in_use[job.account];
  const bool over = quota != nullptr && *pass.rules.QuotaOf(job.account) - in_use < job.least;
  const bool too_few = pass.devices.free < job.least;
  const bool room = !job.held_back && (job.named.empty() ? Preempt(pass, job, quota)
                                                         : PreemptHolders(pass, job, quota));
  const std::string missing = pass.named.WaitsFor(job);
  const std::vector<int64_t> leaving = LeavingFor(pass, job.number);
  const auto position = static_cast<int64_t>(pass.decision.queued.size()) + 1;
  if (job.held_back) {
    Queue(pass, job, WaitReason::kHeldBack, "");
  } else if (room && !leaving.empty()) {
    Queue(pass, job, WaitReason::kRoom, RoomMadeBy(leaving));
  } else if (over) {
    Queue(pass, job, WaitReason::kQuota,
          QuotaUsed(job.account, *pass.rules.QuotaOf(job.account), in_use, job.least));
  } else if (!missing.empty()) {
    Queue(pass, job, WaitReason::kNamed, missing);
  } else if (too_few) {
    Queue(pass, job, WaitReason::kDevices, TooFewFree(job.least, pass.devices));
  } else {
    Queue(pass, job, WaitReason::kBehind, BehindJob(position, behind->job, behind->priority));
  }
  WaitingJob reserving = job;
  if (job.held_back) reserving.least = std::max(job.least, most);
  ReserveFor(pass, reserving, quota, over && !room);
}

// Devices that jobs before lend it: those that it names, or as few as it needs beside free ones,
// for it has to give them back.
int64_t Borrowed(const Pass& pass, const WaitingJob& job) {
  const int64_t lent = pass.named.LentTo(job);
  if (!job.named.empty()) return lent;
  return std::min(lent, std::max<int64_t>(job.least - pass.devices.free, 0));
}

void Place(Pass& pass, const WaitingJob& job) {
  const std::optional<int64_t> allowed = pass.rules.QuotaOf(job.account);
  if (allowed.has_value() && job.least > *allowed) {
    return Queue(pass, job, WaitReason::kQuota,
                 QuotaUsed(job.account, *allowed, pass.in_use[job.account], job.least));
  }
  if (pass.named.AnyOut(job)) {
    if (job.awaits_workers) Keep(pass, job);
    return Queue(pass, job, WaitReason::kNamed, pass.named.WaitsFor(job));
  }
  if (job.least > pass.total) {
    const bool within = !allowed.has_value() || pass.in_use[job.account] + job.least <= *allowed;
    if (job.awaits_workers && within) ReserveAll(pass, job);
    return Queue(pass, job, WaitReason::kTooFew,
                 TooFewThere(job.least, pass.total, pass.state.devices));
  }
  if (job.room_made) Promise(pass, job, -job.least);
  const int64_t lent = Borrowed(pass, job);
  const int64_t free = pass.devices.free + lent;
  // What jobs were stopped for goes to those that need it, no more to each than that.
  int64_t most = std::min(free, job.room_made ? job.least : job.most);
  most = std::min(most, std::max(job.least, free - pass.promised));
  Pool* quota = nullptr;
  if (allowed.has_value()) {
    quota = &pass.quotas.at(job.account);
    const int64_t left = *allowed - pass.in_use[job.account];
    most = std::min({most, left, std::max(job.least, left - pass.promised_to[job.account])});
  }
  const Reservation* behind = nullptr;
  most = LeftForJob(pass, job, most, &behind);
  if (most >= job.least && !job.held_back && pass.named.AreFree(job))
    return Start(pass, job, most, lent);
  Wait(pass, job, most, quota, behind);
}

}  // namespace

QueueDecision PlaceJobs(const QueueState& state, const QueueRules& rules) {
  Pass pass = Begin(state, rules);
  for (auto& [rank, accounts] : ClassesOf(state)) {
    while (const WaitingJob* job = TakeNext(pass.shares, accounts)) Place(pass, *job);
  }
  return std::move(pass.decision);
}

}  // namespace stagewright
