#include "worker_daemon/stage/stage_pass.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "absl/strings/str_cat.h"
#include "worker_daemon/stage/gradient_watch.h"
#include "worker_daemon/torch/torch_guard.h"

namespace stagewright {
namespace {

// A copy of `scalar` where its memory is larger: some losses lie where one number per sample did.
at::Tensor Compact(const at::Tensor& scalar) {
  return scalar.storage().nbytes() > scalar.nbytes() ? scalar.clone() : scalar;
}

}  // namespace

std::string NameOf(const StepSamples& samples) {
  return absl::StrCat("samples [", samples.range.begin, ",", samples.range.end, ")");
}

void StagePass::KeepRoots(const CompiledStage& stage, const std::vector<at::Tensor>& values) {
  tensors.inputs.clear();
  tensors.totals.clear();
  if (segments.has_value()) {
    tensors.received.clear();
    return;
  }
  for (int32_t place : stage.output_places) outputs.push_back(values[place]);
  if (stage.loss.has_value()) loss = Compact(values[*stage.loss]);
}

absl::StatusOr<std::vector<at::Tensor>> StagePass::RunBackward(
    const CompiledStage& stage, const StepSamples& samples,
    const std::vector<at::Tensor>& gradients, const at::Tensor& loss_gradient) {
  if (outputs.size() != stage.outputs.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(samples), ": the forward pass kept nothing for a backward pass"));
  }
  std::vector<at::Tensor> roots, root_gradients;
  for (size_t i = 0; i < stage.outputs.size(); ++i) {
    // A gradient may come for what does not depend on a parameter after all (detached values).
    if (!gradients[i].defined() || !outputs[i].requires_grad()) continue;
    roots.push_back(outputs[i]);
    root_gradients.push_back(gradients[i]);
  }
  if (loss.defined() && loss.requires_grad()) {
    roots.push_back(loss);
    root_gradients.push_back(loss_gradient);
  }
  std::vector<at::Tensor> result(stage.received.size());
  if (roots.empty()) return result;
  RETURN_IF_ERROR(
      Annotate(Guarded([&] { torch::autograd::backward(roots, root_gradients); }), "backward"));
  for (size_t i = 0; i < stage.received.size(); ++i) result[i] = tensors.received[i].grad();
  return result;
}

absl::StatusOr<std::vector<at::Tensor>> StagePass::RunInputHalf(
    const CompiledStage& stage, const StepSamples& samples,
    const std::vector<at::Tensor>& gradients, const at::Tensor& loss_gradient) {
  if (!segments.has_value() || input_done) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(samples), ": nothing is kept for the input half of a backward pass"));
  }
  input_done = true;
  std::vector<at::Tensor> result(stage.received.size());
  const absl::Status status = Guarded([&] {
    for (size_t i = 0; i < stage.outputs.size(); ++i) {
      if (gradients[i].defined() && segments->Flows(stage.output_places[i]))
        segments->AddGradient(stage.output_places[i], gradients[i]);
    }
    if (stage.loss.has_value() && segments->Flows(*stage.loss))
      segments->AddGradient(*stage.loss, loss_gradient);
    segments->BackwardInput();
    for (size_t i = 0; i < stage.received.size(); ++i)
      result[i] = segments->TakeGradient(static_cast<int32_t>(i));
  });
  RETURN_IF_ERROR(Annotate(status, "backward of the inputs"));
  return result;
}

absl::Status StagePass::RunWeightHalf() {
  return Annotate(Guarded([&] { segments->BackwardWeight(versions.weights); }),
                  "backward of the weights");
}

void StagePass::MoveGradients(const CompiledStage& stage, const ParameterStore& parameters) const {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < stage.trained.size(); ++i) {
    MoveGradient(versions.weights[i], parameters[stage.trained[i]]);
  }
}

}  // namespace stagewright
