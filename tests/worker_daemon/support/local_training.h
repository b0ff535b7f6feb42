// Runs a job in one process: every device a thread, any transport between them.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "tests/worker_daemon/support/training_result.h"
#include "tests/worker_daemon/support/transports/transport_factory.h"
#include "worker_daemon/executor/device_job.h"

namespace stagewright::testing {

// Trains `spec`, whose device is ignored, on all devices of its program, merges the checkpoint and
// reads it. The error of the first device that failed. `adjust`, if given, may change the spec of
// each device.
absl::StatusOr<TrainingResult> TrainLocally(
    const DeviceJob& spec, const std::function<void(DeviceJob&)>& adjust = {},
    const TransportFactory& transports = MakeLocalTransport);

// TrainLocally without what comes after training: what `adjust` has the devices report is all that
// is left of it.
absl::Status RunLocally(const DeviceJob& spec, const std::function<void(DeviceJob&)>& adjust,
                        const TransportFactory& transports = MakeLocalTransport);

}  // namespace stagewright::testing
