// What workers say of a job's paths while its plan is sought, so that nobody waits for a plan of a
// job that cannot begin. JobLife::OnPathsChecked (job_life.h) is in path_checks.cc.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "planner_service/jobs/job.h"
#include "planner_service/records/job_records.h"
#include "planner_service/registry/worker_registry.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {

// The workers of the job's devices, if they are to be asked: before its first run. Later ones may
// find what earlier ones have made.
std::set<std::string> WorkersToAsk(const Job& job);

// Asks them.
void AskForPaths(const JobRecords& records, const Job& job, WorkerRegistry* registry);

// Why the job cannot begin; nothing if it can, if the answer comes too late to matter, or if what
// it says may pass and the job may start more than once.
std::optional<std::string> PathsRefusal(const Job& job, const std::string& worker,
                                        const v1::PathsChecked& message);

}  // namespace stagewright
