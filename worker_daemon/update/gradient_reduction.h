// Summing the gradients of parameters over the devices that hold them, and exchanging what these
// have updated, where they share out the parameters.
#pragma once

#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/program/program.h"
#include "worker_daemon/device/device_streams.h"
#include "worker_daemon/stage/parameter_store.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright {

// Replaces the gradient of each parameter of `reduction` by its sum over the reduction's devices;
// devices without a gradient count as zero, and where none has one, none gets one. Gradients are
// flattened, one message stream per data type, in the memory of the accelerator if the transport
// has a way for that between all of the devices, otherwise in that of the host, to and from which
// `streams` (null on a CPU) copies them; `tag` must be free. Blocks; errors of AllReduceSum.
absl::Status ReduceGradients(const Graph& graph, const Reduction& reduction,
                             const ParameterStore& parameters, Transport& transport, Tag tag,
                             absl::Time deadline, DeviceStreams* streams = nullptr);

// For a sharded reduction (parameter_shares.h): replaces this device's share of the gradient of
// each parameter by its sum over the devices, and leaves undefined what the rest of the gradient
// is. With each_pass, adds the sum to that of the share (ParameterStore::share_gradient) instead,
// and lets go of the gradient. Devices have gradients of the same parameters: they are replicas of
// one stage. All else as for ReduceGradients.
absl::Status ScatterGradients(const Graph& graph, const Reduction& reduction,
                              const ParameterStore& parameters, Transport& transport, Tag tag,
                              absl::Time deadline, DeviceStreams* streams = nullptr);

// Replaces what is not this device's share of each parameter of a sharded reduction by what the
// devices have whose share it is. All else as for ReduceGradients.
absl::Status GatherParameters(const Graph& graph, const Reduction& reduction,
                              const ParameterStore& parameters, Transport& transport, Tag tag,
                              absl::Time deadline, DeviceStreams* streams = nullptr);

}  // namespace stagewright
