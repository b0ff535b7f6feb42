// What a running job's steps take beside what its plan predicts: when workers are asked to tell the
// actions of some steps, what becomes of the answers, and when the job has drifted.
//
// A job has drifted when the median of its last steps, sixteen at least, is more than a tenth off
// the prediction: one slow step does not count. Workers are asked every half minute, a second
// ahead, at once when a drift begins, and when the pace changes or a device is suspected to be a
// straggler (look_again.h); a program of many actions for fewer steps, three at least. Actions of
// asynchronous jobs, whose steps overlap, and of jobs with samples of several lengths, whose steps
// have several programs, are not compared; nor is the step time of the latter.
#pragma once

#include "absl/time/time.h"
#include "planner_service/records/job_records.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {

// Whether the actions of the job's steps are compared with its plan's.
bool IsMeasured(const Job& job);

// The first steps are over: training begins.
void BeginMeasuring(JobRecord& record, absl::Time now);

// Devices tell of a step, with its actions if they were asked for. REQUIRES: the job runs.
void NoteActions(JobRecords& records, JobRecord& record, const v1::Progress& message);

// All devices have done a step: the job may begin or cease to drift, and workers be asked anew.
void WatchDrift(JobRecords& records, JobRecord& record, absl::Time now);

// Forgets what was measured: the job gets another plan.
void ForgetMeasurement(JobRecord& record);

}  // namespace stagewright
