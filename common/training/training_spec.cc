#include "common/training/training_spec.h"

#include "common/training/field_check.h"

namespace stagewright {

bool NeedsGradientNorm(const TrainingSpec& spec) {
  return spec.max_gradient_norm > 0 || spec.on_non_finite == NonFinite::kSkip ||
         spec.precision == Precision::kFloat16;
}

absl::Status Check(const TrainingSpec& spec, const TrainingSubject& subject, absl::string_view of) {
  RETURN_IF_ERROR(Check(spec.optimizer, of));
  RETURN_IF_ERROR(Check(spec.optimizer.groups, subject.graph, of));
  constexpr absl::string_view kNorm = "optimizer.max_gradient_norm";
  RETURN_IF_ERROR(CheckNotNegative(of, kNorm, spec.max_gradient_norm));
  if (spec.max_gradient_norm > 0 && subject.asynchronous) {
    return WrongField(
        of, kNorm, "cannot be kept by an asynchronous plan, whose gradients are never all there");
  }
  if (spec.on_non_finite == NonFinite::kSkip && subject.asynchronous) {
    return WrongField(of, "on_nan", NameIn(kNonFiniteNames, spec.on_non_finite),
                      ": an asynchronous plan has no point at which all devices agree");
  }
  RETURN_IF_ERROR(Check(spec.precision, subject.graph, subject.asynchronous, of));
  RETURN_IF_ERROR(Check(spec.evaluation, subject.evaluation_data, of));
  if (!spec.checkpoints.has_value()) return absl::OkStatus();
  return Check(*spec.checkpoints, subject.asynchronous, of);
}

}  // namespace stagewright
