// What a device tells of its work on a job. No LibTorch in this header.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/units.h"
#include "common/program/trace.h"
#include "worker_daemon/device/memory_meter.h"
#include "worker_daemon/stage/operator_times.h"

namespace stagewright {

// One pass through the evaluation data; losses of all devices add up to that of the data set.
struct EvaluationReport {
  double loss = 0;
  int64_t loss_samples = 0;
  int64_t correct = 0;
  int64_t predicted = 0;
};

// What one device saw of a training step. Losses, samples and correct predictions of all devices
// add up to those of the mini-batch; devices without the loss report 0 samples.
struct StepReport {
  bool skipped = false;   // The update was left out, on all devices alike.
  double loss_scale = 0;  // Scale that the step ran with (loss_scale.h); 0: none.
  int64_t step = 0;       // From 0.
  double loss = 0;
  int64_t loss_samples = 0;
  int64_t correct = 0;
  int64_t predicted = 0;  // 0 if the graph does not classify.
  Nanos start = 0;        // CLOCK_MONOTONIC.
  Nanos end = 0;
  std::vector<TraceEvent> events;        // What this device did.
  std::vector<OperatorTimes> operators;  // If DeviceJob::time_operators asked for them.
  MemoryFigures memory;                  // What the job's tensors take here, after the step.
  // The evaluation of all devices together, the same on each, if one followed the step.
  std::optional<EvaluationReport> evaluation;
};

}  // namespace stagewright
