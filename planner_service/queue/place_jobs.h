// Which waiting jobs get devices now.
//
// Jobs go by priority; in one priority those first that others were stopped for, then by the
// devices that their accounts hold, fewest first, with those that this decision gives or keeps for
// their jobs; then by number. A job starts with all that it needs or not at all. One that cannot
// start reserves what it needs: a job behind it starts only if that cannot delay it (back-filling):
// it ends before, or takes what is left over, or is preemptible and of lower priority. A job that
// waits for its account's quota reserves of the quota only. Running jobs are preempted for one of
// strictly higher priority that can then start. A running job of unknown end may end at any moment.
//
// A job that names devices waits for those. While jobs hold some of them, it keeps the others from
// those behind it, and from then on counts for these as if it held them all: who ends makes room
// for them only with what it does not name. While one of them is gone or closed it keeps nothing.
// What it keeps it lends to preemptible jobs of lower priority that cannot start without, as long
// as jobs hold some of its devices that are not being stopped.
// Jobs that name none take such devices last.
//
// Equal states give equal decisions, in whatever order they list jobs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner_service/queue/queue_state.h"
#include "planner_service/queue/wait_reason.h"

namespace stagewright {

struct StartingJob {
  int64_t number = 0;
  int64_t devices = 0;
  std::vector<std::string> named;  // Those of them that are in QueueState::named.
};

// `number` is to be stopped at a checkpoint, because then `room_for` can start.
struct Preemption {
  int64_t number = 0;
  int64_t room_for = 0;
};

// A job that does not start now.
struct QueuedJob {
  int64_t number = 0;
  int64_t position = 0;  // From 1.
  WaitReason reason = WaitReason::kDevices;
  std::string text;  // The reason; empty of kHeldBack.
};

struct QueueDecision {
  std::vector<StartingJob> starts;      // In the order in which they get devices.
  std::vector<Preemption> preemptions;  // New ones.
  std::vector<int64_t> spared;          // They are being stopped for a job that no longer needs it.
  std::vector<QueuedJob> queued;        // By position.
};

// O(waiting * (accounts + reservations + held log held + devices) + starts * held * devices +
// sought * held^2 log held): reservations are those that no earlier one makes needless, sought are
// the jobs that victims are looked for.
QueueDecision PlaceJobs(const QueueState& state, const QueueRules& rules);

}  // namespace stagewright
