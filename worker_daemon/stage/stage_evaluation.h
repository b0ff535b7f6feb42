// One evaluation of a stage's nodes on some samples: its forward pass, or the repetition of one.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/program/step_samples.h"
#include "worker_daemon/stage/compiled_stage.h"
#include "worker_daemon/stage/parameter_store.h"
#include "worker_daemon/stage/segmented_graph.h"
#include "worker_daemon/torch/weight_casts.h"

namespace stagewright {

// What a stage takes, for some samples; each parallel to the list of its name in the CompiledStage.
struct StageTensors {
  std::vector<at::Tensor> received;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> totals;
};

// What a pass reads of the parameters that change.
struct StageVersions {
  std::vector<at::Tensor> weights;  // Parallel to CompiledStage::trained.
  std::vector<at::Tensor> states;   // Parallel to CompiledStage::states.
};

// What stays the same from pass to pass.
struct StageEvaluator {
  const Graph& graph;
  const CompiledStage& stage;
  const ParameterStore& parameters;
  const StageOptions& options;
  WeightCasts& casts;  // A cache: it changes no result.

  // Runs all nodes and gives the values that outlive the pass, by place; the others are undefined.
  // `again`: what ran before is repeated, so buffers keep their values. `segments`, if not null,
  // gets the values that cross between segments. Errors of OperatorCall::Run and KeyedDropout::Run.
  absl::StatusOr<std::vector<at::Tensor>> Run(const StepSamples& samples,
                                              const StageTensors& tensors,
                                              const StageVersions& versions, bool again,
                                              SegmentedGraph* segments) const;
};

}  // namespace stagewright
