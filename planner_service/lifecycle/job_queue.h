// How jobs come to devices: those that wait are served by the rules of planner_service/queue, and
// hold their devices from the moment on that they are planned for them. The transitions are the
// part of JobLife (job_life.h) that job_queue.cc has.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "planner_service/queue/account.h"
#include "planner_service/queue/queue_state.h"
#include "planner_service/records/job_records.h"
#include "planner_service/registry/worker_registry.h"

namespace stagewright {

// Whom the job is charged to.
Account AccountOf(const Job& job);

// Jobs and devices as the queue sees them.
struct JobQueue {
  QueueState state;
  std::map<int64_t, std::string> held_back;  // Why those of its waiting jobs are that are.
};

// All jobs that have not ended; those that pause between two tries to run are held back. `devices`
// are all that are connected. Jobs that were submitted after `measuring_since` wait for links to be
// measured.
JobQueue QueueOf(const JobRecords& records, const std::vector<RegisteredDevice>& devices,
                 absl::Time now, absl::Time measuring_since);

// Whether one of the `wanted` devices that are not `there` may still come back to a planner that
// has started: its worker was not here since, as `events` of workers tell.
bool MayComeBack(const std::vector<std::string>& wanted, const std::vector<RegisteredDevice>& there,
                 const std::vector<Event>& events);

// Whether the devices that a plan names, which was found, stand for the first that are free: they
// do not while theirs may come back for so long, as those of presets never do.
bool GoByNumber(const std::vector<std::string>& named, const std::vector<RegisteredDevice>& devices,
                absl::Duration workers_come_back);

// INVALID_ARGUMENT unless the job can have the devices of its plan: it says which of those that it
// names no connected worker has, or that there are too few for a plan that was found.
absl::Status CheckDevices(const JobRequest& request, const std::vector<RegisteredDevice>& devices);

// An error for want of devices; while workers may bring them back for so long, UNAVAILABLE, with
// when to ask again.
absl::Status Lacking(absl::Status status, absl::Duration workers_come_back);

// What a running job may be planned anew for: its own devices and, while nobody waits for any, free
// ones within its account's quota.
std::vector<RegisteredDevice> DevicesToReplanFor(const JobRecord& record, const QueueState& queue,
                                                 const QueueRules& rules,
                                                 std::vector<RegisteredDevice> devices);

// What the quota of the job's owner leaves besides what its jobs hold; none: any number.
std::optional<int64_t> QuotaLeft(const Job& job, const QueueState& queue, const QueueRules& rules);

// Why the job may not hold these devices instead of those that it does; empty: it may.
std::string MayNotChangeTo(const Job& job, const std::vector<std::string>& devices,
                           const QueueState& queue, const QueueRules& rules);

}  // namespace stagewright
