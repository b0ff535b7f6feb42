// Summing the gradients of parameters over the devices that hold them.
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

}  // namespace stagewright
