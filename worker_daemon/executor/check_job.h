// What a device refuses of a job before it loads anything. No LibTorch here.
#pragma once

#include "common/base/status.h"
#include "worker_daemon/executor/device_job.h"

namespace stagewright {

// INVALID_ARGUMENT, naming the field; errors of CheckLengths, of Check (training_spec.h) and of
// CheckResume.
absl::Status CheckJob(const DeviceJob& job);

}  // namespace stagewright
