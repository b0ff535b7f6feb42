#include "common/training/checkpoint_policy.h"

#include "common/training/field_check.h"

namespace stagewright {

absl::Status Check(const CheckpointPolicy& policy, bool asynchronous, absl::string_view of) {
  RETURN_IF_ERROR(CheckNotNegative(of, "checkpoints.every_steps", policy.every_steps));
  RETURN_IF_ERROR(CheckNotNegative(of, "checkpoints.every_ns", policy.every.count()));
  if (policy.keep < 1)
    return WrongField(of, "checkpoints.keep", "must be positive, is ", policy.keep);
  if (policy.every_steps == 0 && policy.every == 0)
    return WrongField(of, "checkpoints", "needs every_steps or every_ns");
  if (asynchronous) {
    return WrongField(of, "checkpoints",
                      "cannot be taken of an asynchronous plan, which has no state between steps");
  }
  return absl::OkStatus();
}

}  // namespace stagewright
