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
  if (asynchronous && policy.every > 0) {
    return WrongField(of, "checkpoints.every_ns",
                      "is not possible with an asynchronous plan, which is flushed for a "
                      "checkpoint: use every_steps, so that losses do not depend on the clock");
  }
  return absl::OkStatus();
}

}  // namespace stagewright
