// What workers are told and what they say of a run, on the wire.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner_service/drift/action_times.h"
#include "planner_service/jobs/job.h"
#include "planner_service/runs/run.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {

// Steps of a run, from its first one, that workers tell the actions of without being asked.
inline constexpr int64_t kTracedSteps = 10;

// To all workers of a run, but for their devices and the graph. `unfinished`: UnfinishedRuns.
v1::ConnectResponse PrepareMessage(const Job& job, const v1::Cluster& cluster,
                                   const std::vector<v1::Program>& evaluations,
                                   const std::vector<std::string>& unfinished);
// What the job's stages are of: the graph itself, or its name for workers that keep graphs.
void SetGraph(const Job& job, v1::Prepare& prepare);
void NameGraph(const Job& job, v1::Prepare& prepare);
// The graph with its name.
v1::ConnectResponse GraphMessage(const Job& job);
// Whether a job could begin on the worker, as far as its paths go. `unfinished`: UnfinishedRuns.
v1::ConnectResponse PathsMessage(const Job& job, const std::vector<std::string>& unfinished);
// The devices of one worker, by their indices in the job.
void SetDevices(const Job& job, const std::vector<int32_t>& devices, v1::Prepare& prepare);
// What is there of a checkpoint after `unwritten_step` steps, whose shares an earlier run has
// written, is to stay; 0: there is none.
v1::ConnectResponse ConnectMessage(const Job& job, const Run& run, int64_t unwritten_step);
v1::ConnectResponse StartMessage(const Job& job);
v1::ConnectResponse CheckpointMessage(const Job& job, int64_t step, bool hold = false);
// Whether all could empty their pipelines after that step, to save their state.
v1::ConnectResponse OfferMessage(const Job& job, int64_t step);
v1::ConnectResponse GoOnMessage(const Job& job);
v1::ConnectResponse TraceMessage(const Job& job, int64_t first_step, int32_t steps);
v1::ConnectResponse ManifestMessage(const Job& job, const WrittenCheckpoint& checkpoint);
v1::ConnectResponse MergeMessage(const Job& job, const Run& run);
v1::ConnectResponse ReleaseMessage(const Job& job);
// To stop what a worker does of that generation.
v1::ConnectResponse AbortMessage(const std::string& job, int64_t generation,
                                 const std::string& reason);

// The job's present run, for the reason that its message tells.
v1::ConnectResponse AbortMessage(const Job& job);

Preparation FromProto(const v1::Prepared& message);
// What one device reports of a step; `step` is the message's.
StepShare ShareOf(const v1::DeviceProgress& device, int64_t step);
StepShare ShareOf(const v1::JobStep& step);
v1::JobStep ToProto(const StepFigures& figures);
WrittenShare FromProto(const v1::ShardWritten& message);
Completion FromProto(const v1::Finished& message);
TimedOperator FromProto(const v1::OperatorTime& proto);
v1::OperatorTime ToProto(const TimedOperator& timed);

}  // namespace stagewright
