// All that says how a job trains, whatever its graph, data and plan.
#pragma once

#include <optional>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/training/checkpoint_policy.h"
#include "common/training/evaluation_policy.h"
#include "common/training/non_finite.h"
#include "common/training/optimizer_spec.h"
#include "common/training/precision.h"

namespace stagewright {

struct TrainingSpec {
  OptimizerSpec optimizer;
  // Gradients whose norm over all parameters of the job is larger are scaled down to it
  // (torch.nn.utils.clip_grad_norm_). 0: never.
  double max_gradient_norm = 0;
  NonFinite on_non_finite = NonFinite::kStop;
  Precision precision = Precision::kGraph;
  LossScaleRule loss_scale;  // With Precision::kFloat16.
  EvaluationPolicy evaluation;
  std::optional<CheckpointPolicy> checkpoints;  // None: the final one only.

  friend bool operator==(const TrainingSpec&, const TrainingSpec&) = default;
};

// Whether devices have to sum a norm of all gradients before they update
// (LowerOptions::gradient_norm).
bool NeedsGradientNorm(const TrainingSpec& spec);

// What is trained, as far as a check has to know it.
struct TrainingSubject {
  const Graph& graph;
  bool asynchronous = false;     // The plan is.
  bool evaluation_data = false;  // There are some.
};

// INVALID_ARGUMENT names the field, as the wire calls it, and what it must be: the checks of all
// parts, and what an asynchronous plan cannot do. `of` goes before the field.
absl::Status Check(const TrainingSpec& spec, const TrainingSubject& subject,
                   absl::string_view of = "");

}  // namespace stagewright
