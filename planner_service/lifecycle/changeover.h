// How a running job comes to another plan, or leaves workers that drain.
//
// All devices save their state after one step, named a second ahead, and wait there. If all have,
// and the manifest is written, the run ends and the next one goes on from that checkpoint under the
// new plan, or under one that is made then for the devices that are left: no step is lost, none is
// done twice. If a device was told too late, all go on and are told a later step.
#pragma once

#include <string>

#include "planner_service/lifecycle/job_records.h"

namespace stagewright {

// Has all devices save their state and stop after one step. False if the job ends before. REQUIRES:
// the job runs.
bool Hold(JobRecords& records, JobRecord& record);

// The job has workers that drain: it is to leave them, unless it ends before or is about to change
// its plan.
void LeaveDraining(JobRecords& records, JobRecord& record, absl::Time now);

// The job is to change its plan after the checkpoint of this step.
bool ChangesAfter(JobRecord& record, int64_t step);

// A device did not stop there, or a checkpoint could not be written: all go on; with `again` they
// are asked for a later step, a few times, else the job keeps its plan and says why. It tries to
// leave workers that drain again after a while.
void FailHold(JobRecords& records, JobRecord& record, bool again, const std::string& why);

// The job gets the plan, on the devices that it has.
void Adopt(JobRecords& records, JobRecord& record, PlannedJob plan);

}  // namespace stagewright
