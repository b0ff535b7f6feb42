// What workers report of a run: weights that come, steps, checkpoints, the end. It is noted in
// the job, and those are told that have to hear of it; what becomes of the job is JobLife's.
#pragma once

#include <optional>
#include <string>

#include "planner_service/records/job_records.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {

// Whether a job in that state has a run that the message can be about.
bool IsOfRun(JobState state, const v1::ConnectRequest& message);

// A worker fetches its part of the weights. Whether it has more of it than it last said.
bool NoteFetching(JobRecords& records, JobRecord& record, const std::string& worker,
                  const v1::Fetching& message);

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

// The run is over because of the workers that it lost: a checkpoint that lacks nothing but its
// manifest gets that from one of the others, which writes it before it says that the run has ended,
// or else from those of the next run. O(graph) if there is one.
void SaveManifest(JobRecords& records, JobRecord& record);

// A worker whose stream broke carries on with its part: it is told again whatever it may have
// missed and others wait for. Who has heard it already does nothing twice.
void TellAgain(JobRecords& records, JobRecord& record, const std::string& worker);

}  // namespace stagewright
