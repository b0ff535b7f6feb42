// Whether what a worker says of a run can be: it is believed only where it fits the job's program.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "planner_service/jobs/job.h"
#include "planner_service/runs/run.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {

// Bounds on what one report may hold.
inline constexpr int64_t kMostSteps = int64_t{1} << 48;
inline constexpr int kMostFiles = 64;          // One device has in one checkpoint.
inline constexpr size_t kMostText = 64 << 10;  // Bytes of a message, a path or an address.
inline constexpr int kMostTexts = 1024;        // Warnings or shards.

// As many events as a step of the plan can be told in, of all devices, samples of every length.
int64_t MostEvents(const v1::Plan& plan);

// INVALID_ARGUMENT names the field: a device that is none of the worker's, a step beyond the job's
// last one, more entries than the program can have, a text that is too long, a negative count.
// REQUIRES: the worker takes part in the run.
absl::Status CheckReport(const Job& job, const Run& run, const std::string& worker,
                         const v1::ConnectRequest& report);

}  // namespace stagewright
