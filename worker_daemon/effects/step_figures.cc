#include "worker_daemon/effects/step_figures.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_daemon/torch/torch_guard.h"

namespace stagewright {

absl::Status StepFigures::Add(const StepAction& pass, PassFigures figures, const at::Tensor& loss,
                              const at::Tensor& correct) {
  figures.has_loss = loss.defined();
  if (streams_ != nullptr) {
    if (figures.has_loss || correct.defined()) AskFor(pass, figures, loss, correct);
    return absl::OkStatus();
  }
  if (figures.has_loss) figures.loss = loss.item<double>();
  RETURN_IF_ERROR(CheckLoss(figures.loss));
  if (correct.defined()) figures.correct = correct.item<int64_t>();
  absl::MutexLock lock(&mutex_);
  Count(figures);
  return absl::OkStatus();
}

absl::Status StepFigures::CheckLoss(double loss) const {
  if (std::isfinite(loss) || options_.on_non_finite != NonFinite::kStop) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the loss is ", loss));
}

void StepFigures::Count(const PassFigures& figures) {
  StepOutput& output = outputs_[figures.step];
  if (figures.has_loss) {
    const auto samples = static_cast<double>(figures.samples);
    output.loss += options_.reduction == LossReduction::kMean
                       ? figures.loss * samples / static_cast<double>(figures.valid)
                       : figures.loss * options_.loss_share;
    output.loss_samples += figures.samples;
  }
  output.correct += figures.correct;
  output.predicted += figures.predicted;
}

void StepFigures::AskFor(const StepAction& pass, const PassFigures& figures, const at::Tensor& loss,
                         const at::Tensor& correct) {
  const at::Tensor host = buffers_.Take(2 * sizeof(double));
  PassFigures* entry = nullptr;  // In a deque that only grows and shrinks at its ends.
  {
    absl::MutexLock lock(&mutex_);
    entry = &expected_.emplace_back(figures);
    ++outstanding_;
  }
  const auto make = [loss, correct] {
    const at::NoGradGuard no_grad;
    const at::Tensor none = at::zeros({}, (loss.defined() ? loss : correct).options());
    return at::stack({(loss.defined() ? loss : none).reshape({}).to(at::kDouble),
                      (correct.defined() ? correct : none).to(at::kDouble)})
        .view(at::kByte);
  };
  const auto come = [this, pass, entry, host, has_loss = figures.has_loss](absl::Status status) {
    const auto* values = static_cast<const double*>(host.data_ptr());
    const bool came = status.ok();
    if (came && has_loss) status = CheckLoss(values[0]);
    // Before it counts as come: who waits for it must see the failure.
    if (!status.ok()) on_failure_(pass, status);
    absl::MutexLock lock(&mutex_);
    --outstanding_;
    if (!came) return;
    entry->loss = values[0];
    entry->correct = static_cast<int64_t>(values[1]);
  };
  const absl::Status thrown =
      Guarded([&] { streams_->CopyOut(streams_->Record(), make, host, come); });
  if (!thrown.ok()) come(thrown);
}

void StepFigures::AwaitAll() {
  absl::MutexLock lock(&mutex_);
  if (expected_.empty()) return;
  const auto come = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return outstanding_ == 0; };
  mutex_.Await(absl::Condition(&come));
  for (const PassFigures& figures : expected_) Count(figures);
  expected_.clear();
}

double StepFigures::LossOf(int64_t step) {
  absl::MutexLock lock(&mutex_);
  return outputs_[step].loss;
}

void StepFigures::SetSkipped(int64_t step, bool skipped) {
  absl::MutexLock lock(&mutex_);
  outputs_[step].skipped = skipped;
}

StepOutput StepFigures::Take(int64_t step) {
  absl::MutexLock lock(&mutex_);
  StepOutput output = std::move(outputs_[step]);
  outputs_.erase(step);
  return output;
}

}  // namespace stagewright
