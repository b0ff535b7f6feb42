// Everything that one device needs to run its part of a job. Plain data; no LibTorch, no gRPC.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/base/units.h"
#include "common/graph/graph.h"
#include "common/schedule/program.h"
#include "common/schedule/trace.h"
#include "worker_daemon/data/sampler.h"
#include "worker_daemon/engine/optimizer_config.h"

namespace stagewright {

// What one device saw of a training step. Losses, samples and correct predictions of all devices
// add up to those of the mini-batch; devices without the loss report 0 samples.
struct StepReport {
  int64_t step = 0;  // From 0.
  double loss = 0;
  int64_t loss_samples = 0;
  int64_t correct = 0;
  int64_t predicted = 0;  // 0 if the graph does not classify.
  Nanos start = 0;        // CLOCK_MONOTONIC.
  Nanos end = 0;
  std::vector<TraceEvent> events;  // Of this device.
};

// The same over one pass through the evaluation data; losses of all devices add up to that of the
// data set.
struct EvaluationReport {
  double loss = 0;
  int64_t loss_samples = 0;
  int64_t correct = 0;
  int64_t predicted = 0;
};

struct JobSpec {
  std::shared_ptr<const Graph> graph;
  std::shared_ptr<const Program> program;     // Trains.
  std::shared_ptr<const Program> evaluation;  // Does not; same stages. Null: no evaluation.
  DeviceId device;
  std::string torch_device = "cpu";  // As LibTorch names it: "cpu", "cuda:1".

  std::string weights_path;     // `.safetensors` with the graph's parameters.
  std::string data_path;        // `.safetensors` with the graph's inputs.
  std::string evaluation_path;  // Ditto; needed with `evaluation`.

  OptimizerConfig optimizer;
  int64_t steps = 1;
  uint64_t seed = 0;  // Of the order of samples and of dropout.
  SampleOrder order = SampleOrder::kShuffled;
  absl::Duration step_timeout = absl::Seconds(60);  // A step that takes longer hangs.
  double loss_weight = 1.0;  // Multiplies the gradient of the loss; 1 is PyTorch's.

  // Called on the thread that runs the job, between steps. May be empty.
  std::function<void(StepReport)> on_step;
  std::function<void(const EvaluationReport&)> on_evaluation;
};

// The devices that `device` exchanges messages with, ascending: the peers of its transport.
std::vector<int> PeersOf(const JobSpec& spec);

}  // namespace stagewright
