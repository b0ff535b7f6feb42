// The collectives of a program: sums of gradients over replicas, of all or of shares, and of their
// squared norm over all devices, and exchanges of shares that were updated.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/memory/parameter_shares.h"
#include "common/program/program.h"
#include "common/training/non_finite.h"
#include "worker_daemon/device/device_streams.h"
#include "worker_daemon/effects/step_figures.h"
#include "worker_daemon/messages/tag_counter.h"
#include "worker_daemon/stage/parameter_store.h"
#include "worker_daemon/step/step_action.h"
#include "worker_daemon/transport/transport.h"
#include "worker_daemon/update/loss_scale.h"

namespace stagewright {

struct ReductionOptions {
  double max_gradient_norm = 0;                // 0: gradients are not clipped.
  NonFinite on_non_finite = NonFinite::kStop;  // For the norm of gradients.
  // Null: none. With one, steps whose gradients are not finite update nothing, whatever
  // on_non_finite says, and the scale changes after each.
  LossScale* loss_scale = nullptr;
  uint32_t first_channel = 0;  // See TagCounter.
};

// Not thread-safe.
class Reductions {
 public:
  // All arguments must outlive it but `options`; `transport` may be null for programs without
  // collectives over several devices, `streams` where the device has none.
  Reductions(const Graph& graph, const Program& program, DeviceId device,
             ParameterStore& parameters, StepFigures& figures, Transport* transport,
             DeviceStreams* streams, const ReductionOptions& options);

  // Runs a collective, until its end or the transport's. Throws what LibTorch throws.
  absl::Status Run(const StepAction& action);

 private:
  absl::Status ReduceNorm(const StepAction& action, const Reduction& reduction, Tag tag);

  const Graph& graph_;
  const Program& program_;
  ParameterStore& parameters_;
  StepFigures& figures_;
  Transport* const transport_;
  DeviceStreams* const streams_;
  const ReductionOptions options_;
  const std::vector<ParameterRange> owned_;  // What counts here in the gradients' norm.
  TagCounter tags_;
};

}  // namespace stagewright
