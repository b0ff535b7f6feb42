// Runs a job in one process: every device a thread, any transport between them.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/strategy/strategy.h"
#include "tests/worker_daemon/support/pair_transport.h"
#include "worker_daemon/executor/device_job.h"
#include "worker_daemon/stage/parameter_store.h"

namespace stagewright::testing {

// A strategy lowered for training and for evaluation, and checked.
struct Programs {
  std::shared_ptr<const Program> training;
  std::shared_ptr<const Program> evaluation;
};
absl::StatusOr<Programs> LowerBoth(const Graph& graph, const Strategy& strategy);

struct TrainingResult {
  std::map<std::string, at::Tensor> parameters;  // By name, aliases included.
  std::vector<double> losses;                    // Per step, over all devices.
  std::vector<EvaluationReport> evaluations;     // Added up over all devices.
  std::vector<int64_t> correct, predicted;       // Per step.
  std::vector<TraceEvent> trace;                 // Events of all devices and steps.
  std::vector<std::string> warnings;
};

absl::StatusOr<std::unique_ptr<Transport>> MakeLocalTransport(const TransportIdentity& identity);

// Trains `spec`, whose device is ignored, on all devices of its program, merges the checkpoint and
// reads it. The error of the first device that failed. `adjust`, if given, may change the spec of
// each device.
absl::StatusOr<TrainingResult> TrainLocally(
    const DeviceJob& spec, const std::function<void(DeviceJob&)>& adjust = {},
    const TransportFactory& transports = MakeLocalTransport);

// The totals of a batch of `samples` samples whose inputs `input` gives, by TotalId: what a module
// of the whole graph reads besides them.
std::vector<at::Tensor> TotalsOf(const Graph& graph, const ParameterStore& parameters,
                                 const std::function<at::Tensor(InputId)>& input, int64_t samples);

// All tensors of a `.safetensors` file.
absl::StatusOr<std::map<std::string, at::Tensor>> ReadTensors(const std::string& path);

}  // namespace stagewright::testing
