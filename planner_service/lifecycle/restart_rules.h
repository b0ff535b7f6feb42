// What a job that lost its run may do next: pure rules, carried out by JobLife.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "planner_service/lifecycle/job_records.h"

namespace stagewright {

// A job that is to start again waits at most so long for its workers to end the run before: those
// that have not are then planned without.
inline constexpr absl::Duration kRunsEndWithin = absl::Seconds(10);

// A worker that gives up a run with this code may do so because another one is gone or hangs; other
// codes are the job's own, and come again.
bool MayBeLoss(absl::StatusCode code);

// Losses are left to be made good, by the job's policy and number.
bool MayRestart(const Job& job);

// It goes on with what an earlier run has done, after a loss or because it left a worker.
bool GoesOn(const Job& job);

// What a job is planned for: so many of the free devices, or none yet, with what it waits for.
struct DeviceShare {
  size_t devices = 0;
  std::string waits_for;
};
DeviceShare ShareOf(const JobRecord& record, size_t free);

// Why a job that is to start again does not yet; empty: it may. `ending` are the workers that have
// not ended its run before.
std::string WaitsToStart(const JobRecord& record, const std::vector<std::string>& ending,
                         absl::Time now);

// The devices that are left cannot hold the job, but more may: it is to wait for them.
bool MayWaitForMore(const JobRecord& record, const absl::Status& planned);

}  // namespace stagewright
