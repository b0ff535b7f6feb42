// Clipping gradients by their norm over all parameters of the job, wherever these are.
#pragma once

#include <vector>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/memory/parameter_shares.h"
#include "common/program/program.h"
#include "common/training/non_finite.h"
#include "worker_daemon/stage/parameter_store.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright {

// What torch.nn.utils.clip_grad_norm_ does on one device, over the devices of `reduction`: scales
// all gradients of `parameters`, and of shares of them, by max_norm / (norm + 1e-6) where that is
// less than 1, in place. `owned` is what counts here; over all devices each element of the job's
// parameters counts once. Norms are summed as double. Every device finds the same one to the bit
// and returns it. `transport` may be null for a device alone. Blocks; `tag` must be free.
// `max_norm` 0: no scaling. A norm that is not finite is treated by `policy`: kStop is
// FAILED_PRECONDITION, before anything is scaled; kSkip drops the gradients of all `parameters`,
// and a parameter without a gradient is not updated; kContinue scales with it. `finite` false makes
// the norm not a number on all devices: this one knows of a reason, such as its loss, why the step
// must not count. Gradients that are `loss_scale` times what they ought to be are divided by it
// first. Errors of AllReduceSum.
absl::StatusOr<double> ClipGradientNorm(const Reduction& reduction,
                                        const std::vector<ParameterRange>& owned, double max_norm,
                                        const ParameterStore& parameters, Transport* transport,
                                        Tag tag, absl::Time deadline,
                                        NonFinite policy = NonFinite::kStop, bool finite = true,
                                        double loss_scale = 1);

}  // namespace stagewright
