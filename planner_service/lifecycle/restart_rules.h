// What a job that lost its run may do next: pure rules, carried out by JobLife.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "planner_service/records/job_records.h"

namespace stagewright {

// A worker that gives up a run with this code may do so because another one is gone or hangs; other
// codes are the job's own, and come again.
bool MayBeLoss(absl::StatusCode code);

// Losses are to be made good, by the job's policy.
bool RestartsAtAll(const Job& job);
// The same, and there are restarts left.
bool MayRestart(const Job& job);

// It goes on with what an earlier run has done, after a loss or because it left a worker.
bool GoesOn(const Job& job);

// How many of the free devices a job is planned for: at least so many, and as many as there are up
// to `most`.
struct DeviceShare {
  size_t least = 1, most = 1;
};
DeviceShare ShareOf(const JobRecord& record);
// The same of a running job, if it lost some of its devices.
DeviceShare ShareAfterLoss(const JobRecord& record);

// Why a job that is to start again does not yet; empty: it may. `ending` are the workers that have
// not ended its run before: it waits kRunsEndWithin for them, and is then planned without.
std::string WaitsToStart(const JobRecord& record, const std::vector<std::string>& ending,
                         absl::Time now);

// The devices that are left cannot hold the job, but more may: it is to wait for them.
bool MayWaitForMore(const JobRecord& record, const absl::Status& planned);

}  // namespace stagewright
