// A micro-batch of a stage between its forward and its backward pass: what that starts from, and
// the gradients it makes.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/program/step_samples.h"
#include "worker_daemon/stage/compiled_stage.h"
#include "worker_daemon/stage/parameter_store.h"
#include "worker_daemon/stage/segmented_graph.h"
#include "worker_daemon/stage/stage_evaluation.h"

namespace stagewright {

// "samples [0,4)", for messages.
std::string NameOf(const StepSamples& samples);

// `stage` is always the one whose pass this is.
struct StagePass {
  StageTensors tensors;  // Received ones are leaves.
  StageVersions versions;
  std::vector<at::Tensor> outputs;         // With their autograd graph.
  at::Tensor loss;                         // With its autograd graph.
  std::optional<SegmentedGraph> segments;  // Instead of outputs and loss: a split backward pass.
  bool input_done = false;                 // The input half of a split backward pass has run.

  // Keeps of the values of a forward pass, by place, those that its backward pass starts from, and
  // of the tensors those that get gradients.
  void KeepRoots(const CompiledStage& stage, const std::vector<at::Tensor>& values);

  // A backward pass in one go, from the gradients of the outputs (undefined: none) and of the loss.
  // Adds the gradients of parameters and returns those of received values, undefined where nothing
  // flows back. FAILED_PRECONDITION, naming `samples`, if no roots were kept; INTERNAL with
  // LibTorch's message.
  absl::StatusOr<std::vector<at::Tensor>> RunBackward(const CompiledStage& stage,
                                                      const StepSamples& samples,
                                                      const std::vector<at::Tensor>& gradients,
                                                      const at::Tensor& loss_gradient);

  // The halves of a split one.
  absl::StatusOr<std::vector<at::Tensor>> RunInputHalf(const CompiledStage& stage,
                                                       const StepSamples& samples,
                                                       const std::vector<at::Tensor>& gradients,
                                                       const at::Tensor& loss_gradient);
  absl::Status RunWeightHalf();

  // After a backward pass: gradients that were added up in older versions of the parameters belong
  // to the newest.
  void MoveGradients(const CompiledStage& stage, const ParameterStore& parameters) const;
};

}  // namespace stagewright
