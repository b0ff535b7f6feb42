// The compute actions of a program: the passes of its stages, from what they receive and load to
// what they hand over, and the updates.
//
// Forward passes of an asynchronous program run micro-batches of the next step, too. An optimizer
// step puts a new version of the parameters in the place of one that a micro-batch in flight still
// needs, so that as many versions exist as there are micro-batches in flight, and with vertical
// sync as many as in the stage with most of them.
//
// On an accelerator a pass has ended when it is queued; one that reads a message waits for its copy
// on the device. Sums that start within a backward pass queue what they read and write behind what
// that has queued so far.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/program/program.h"
#include "worker_daemon/device/device_streams.h"
#include "worker_daemon/effects/device_stages.h"
#include "worker_daemon/effects/sends.h"
#include "worker_daemon/effects/step_figures.h"
#include "worker_daemon/effects/step_inputs.h"
#include "worker_daemon/messages/mailbox.h"
#include "worker_daemon/step/step_action.h"
#include "worker_daemon/update/optimizer.h"

namespace stagewright {

// Not thread-safe.
class StagePasses {
 public:
  // What passes work with; all of it outlives them.
  struct Context {
    const Graph& graph;
    const Program& program;
    const DevicePlan& plan;
    DeviceStages& stages;
    StepInputs& inputs;
    Mailbox& mailbox;
    Sends& sends;
    StepFigures& figures;
    ParameterOptimizer* optimizer = nullptr;  // Null in programs that do not train.
    // Null, unless what is queued on the device runs while the compute lane goes on.
    DeviceStreams* streams = nullptr;
    // Told, on any thread, when a backward pass under way has come to a mark.
    std::function<void(const StepAction& pass, int32_t node)> reach;
  };

  explicit StagePasses(const Context& context) : context_(context) {}

  // Runs a compute action, whose `after` have ended. Throws what LibTorch throws.
  absl::Status Run(const StepAction& action);

 private:
  absl::Status Forward(const StepAction& pass);
  absl::Status Recompute(const StepAction& pass);
  absl::Status Backward(const StepAction& pass);
  absl::Status BackwardWeight(const StepAction& pass);
  // What all-reduces wait for within the pass.
  AwaitedGradients AwaitedIn(const StepAction& pass) const;
  void Update(const StepAction& action);
  // The loss of a micro-batch that is filled up counts its valid samples only, so they run alone.
  absl::Status EvaluateValid(const StepAction& pass, const StageModule::Tensors& tensors);

  absl::StatusOr<StageModule::Tensors> CollectTensors(const StepAction& pass);
  absl::StatusOr<std::vector<at::Tensor>> CollectGradients(const StepAction& pass);
  std::vector<TensorPiece> Take(int32_t channel, Direction direction, const StepSamples& samples);
  absl::Status HandOver(const StepAction& pass, Direction direction, PassResult result);
  absl::Status AddFigures(const StepAction& pass, const StageModule::Forwarded& result,
                          const StepSamples& samples);

  const Context context_;
};

}  // namespace stagewright
