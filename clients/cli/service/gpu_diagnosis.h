// What is wrong with the GPUs of workers' machines, found in what workers tell of them.
#pragma once

#include <vector>

#include "clients/cli/service/diagnosis.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright::cli {

// Whether each machine's driver runs what its worker is built with.
Finding CheckGpuDrivers(const v1::ListWorkersResponse& workers);
// Whether workers have one version of NCCL: devices of different ones cannot meet.
Finding CheckNccl(const v1::ListWorkersResponse& workers);
// Whether the GPUs of each machine read each other's memory.
Finding CheckPeerAccess(const v1::ListWorkersResponse& workers);
// Whether GPUs ran as fast as they could when their workers started.
Finding CheckGpuClocks(const v1::ListWorkersResponse& workers);

// All of the above that have something to look at; none without GPUs.
std::vector<Finding> CheckGpus(const v1::ListWorkersResponse& workers);

}  // namespace stagewright::cli
