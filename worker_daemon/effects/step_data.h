// What a step takes and gives on one device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "common/program/trace.h"
#include "worker_daemon/stage/operator_times.h"

namespace stagewright {

// One mini-batch.
struct StepInput {
  // Number of the step in the job, from 0; keys dropout and names errors.
  int64_t step = 0;
  std::span<const int64_t> samples;  // Indices into the data set: mini_batch of them.
  int64_t valid = 0;  // Samples [0, valid) count; the others fill up. All of them in training.
  absl::Time deadline = absl::InfiniteFuture();
  // How many steps of an asynchronous program follow without a flush, each run with the step number
  // after the one before it.
  int64_t steps_left = 0;
  // The samples of the next step that this executor runs, so that they can be gathered ahead. May
  // be empty, unless its passes run in this step, too: if steps are left.
  std::span<const int64_t> next_samples;
  // Totals of the data set that the mini-batch is a part of, as TotalsOf gives them: the loss is
  // its share of the data set's. Null: those of the mini-batch itself.
  const std::vector<at::Tensor>* totals = nullptr;
  bool time_operators = false;
};

// What one device saw of a step. Loss, samples and correct predictions of all devices add up to
// those of the mini-batch.
struct StepOutput {
  // The loss of the valid samples: a mean is weighted by samples / valid.
  double loss = 0;
  int64_t loss_samples = 0;  // Samples that `loss` covers.
  int64_t correct = 0;       // Predictions whose largest entry is the target's class.
  int64_t predicted = 0;     // Predictions looked at; 0 if the graph does not classify.
  bool skipped = false;      // The update was left out, on all devices alike (NonFinite::kSkip).
  // In order of their end. Asynchronous programs: those that ended since the step before; actions
  // as in the program, `step` that of their section (the prologue belongs to the first).
  std::vector<TraceEvent> events;
  // If StepInput::time_operators, on devices without a clock of their own; else empty.
  std::vector<OperatorTimes> operators;
};

}  // namespace stagewright
