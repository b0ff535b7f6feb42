// How a running job comes to another plan, leaves workers that drain, or makes room for another.
//
// All devices save their state after one step, named a second ahead, and wait there. If all have,
// and the manifest is written, the run ends and the next one goes on from that checkpoint under the
// new plan, or under one that is made then for the devices that are left: no step is lost, none is
// done twice. If a device was told too late, all go on and are told a later step.
//
// An asynchronous plan has no state between steps while its pipeline is full. There the step is
// first offered: when all workers have agreed, their devices let the pipeline run empty after it
// (worker_daemon/step/flush_steps.h), so that the losses are those of a schedule with a flush
// there.
#pragma once

#include <string>

#include "planner_service/records/job_records.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {

// Has all devices save their state and stop after one step. False if the job ends before. REQUIRES:
// the job runs and has a changeover.
bool Hold(JobRecords& records, JobRecord& record);

// A worker has answered whether it could stop after a step under an asynchronous plan: once all
// have agreed, they are told so.
void NoteAgreement(JobRecords& records, JobRecord& record, const std::string& worker,
                   const v1::CheckpointAgreed& message);
bool AwaitsAgreement(const JobRecord& record);
// Gives a step up that workers do not agree to in time.
void EndLateOffer(JobRecords& records, JobRecord& record, absl::Time now);

bool IsAsynchronous(const Job& job);

// The job has workers that drain: it is to leave them, unless it ends before or is about to change
// its plan.
void LeaveDraining(JobRecords& records, JobRecord& record, absl::Time now);

// Whether it can be stopped between two steps now.
bool CanStop(const JobRecord& record, absl::Time now);

// The job is to save its state and give its devices back, for another one that is told as
// `room_text`. False if it ends before: nothing comes of it.
bool MakeRoom(JobRecords& records, JobRecord& record, int64_t room_for,
              const std::string& room_text, absl::Time now);

// Nobody needs the room any more: all go on. REQUIRES: the job makes room.
void KeepRunning(JobRecords& records, JobRecord& record);

// The job is to change its plan after the checkpoint of this step.
bool ChangesAfter(JobRecord& record, int64_t step);

// A device did not stop there, or a checkpoint could not be written: all go on; with `again` they
// are asked for a later step, a few times, else the job keeps its plan and says why. It tries to
// leave workers that drain again after a while.
void FailHold(JobRecords& records, JobRecord& record, bool again, const std::string& why);

// The job gets the plan. REQUIRES: it has the plan's devices, and no others.
void Adopt(JobRecords& records, JobRecord& record, PlannedJob plan);

}  // namespace stagewright
