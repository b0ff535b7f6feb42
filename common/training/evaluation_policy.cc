#include "common/training/evaluation_policy.h"

#include "common/training/field_check.h"

namespace stagewright {

absl::Status Check(const EvaluationPolicy& policy, bool has_data, absl::string_view of) {
  RETURN_IF_ERROR(CheckNotNegative(of, "evaluate_every", policy.every));
  if (policy.every > 0 && !has_data)
    return WrongField(of, "evaluate_every", "needs ", of, "evaluation_data_path");
  RETURN_IF_ERROR(CheckNotNegative(of, "patience", policy.patience));
  if (policy.patience > 0 && policy.every == 0)
    return WrongField(of, "patience", "needs ", of, "evaluate_every");
  return CheckNotNegative(of, "min_delta", policy.min_delta);
}

}  // namespace stagewright
