// What workers report of a run whose stages compute: steps, checkpoints, the end. It is noted in
// the job, and those are told that have to hear of it; what becomes of the job is JobLife's.
#pragma once

#include <optional>
#include <string>

#include "planner_service/lifecycle/job_records.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {

// Devices have done a step.
void NoteProgress(JobRecords& records, JobRecord& record, const v1::Progress& message);
// What a worker that comes back has done meanwhile.
void NoteSteps(JobRecords& records, JobRecord& record, const v1::StepsSoFar& message);

// A device has written its share of a checkpoint, or a worker the whole of it. The answer says why
// the job fails, if it must.
std::optional<std::string> NoteShard(JobRecords& records, JobRecord& record,
                                     const v1::ShardWritten& message);
std::optional<std::string> NoteCheckpoint(JobRecords& records, JobRecord& record,
                                          const std::string& worker,
                                          const v1::CheckpointWritten& message);

// A worker's devices are done; after the last one's, the final checkpoint is merged.
void NoteFinished(JobRecords& records, JobRecord& record, const std::string& worker,
                  const v1::Finished& message);

}  // namespace stagewright
