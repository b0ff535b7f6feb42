// A job as the planner's Prepare describes it, for the devices of a worker.
#pragma once

#include "common/base/status.h"
#include "stagewright/v1/worker_service.pb.h"
#include "worker_daemon/data/path_roots.h"
#include "worker_daemon/executor/device_job.h"

namespace stagewright {

// What all devices of the worker have in common of the job, its number of steps included, which is
// given or as many mini-batches as its epochs hold. Reads how many samples the data has.
// INVALID_ARGUMENT, naming the field: programs come from the wire, so they are checked before
// anything that they could break may see them. Errors of SampleLengths::Read.
absl::StatusOr<DeviceJob> JobFromPrepare(const v1::Prepare& prepare);

// Errors of path_roots.h, naming the field, if the job would leave the roots, through links to its
// checkpoints, too.
absl::Status CheckPaths(const PathRoots& roots, const v1::JobSpec& spec);
absl::Status CheckPaths(const PathRoots& roots, const v1::Merge& merge);

}  // namespace stagewright
