// Runs a program on one device, step by step: a StepMachine says which action runs when, and
// DeviceEffects does it.
//
// The thread that calls RunStep runs the compute lane; step_machine.h says where the others run.
//
// On an accelerator actions end when they are queued. The figures of a step are looked at when they
// come, and waited for where they decide something: before parameters change, for the norm of the
// gradients and at the end of a step.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/data/dataset.h"
#include "common/graph/graph.h"
#include "common/program/program.h"
#include "worker_daemon/effects/step_data.h"
#include "worker_daemon/executor/executor_options.h"
#include "worker_daemon/stage/parameter_store.h"
#include "worker_daemon/step/device_plan.h"
#include "worker_daemon/step/step_machine.h"
#include "worker_daemon/transport/transport.h"
#include "worker_daemon/update/optimizer.h"

namespace stagewright {

class DeviceEffects;

class Executor {
 public:
  // All references must outlive the executor. `optimizer` may be null for programs that do not
  // train, `transport` for devices that talk to no other; otherwise it is connected to all of them.
  // Errors of MakeDevicePlan and StageModule::Create.
  static absl::StatusOr<std::unique_ptr<Executor>> Create(
      const Graph& graph, const Program& program, DeviceId device, ParameterStore& parameters,
      const Dataset& data, ParameterOptimizer* optimizer, Transport* transport,
      const ExecutorOptions& options);

  // Waits for every transfer to end, aborting the transport if a run of several steps was left in
  // its middle. REQUIRES: no call is under way.
  ~Executor();

  // Runs one step. Not thread-safe.
  // DEADLINE_EXCEEDED, naming device, step and the actions that were waited for;
  // FAILED_PRECONDITION if the loss is not finite and that must stop the job, before the parameters
  // change; what Abort was called with; errors of the transport. After an error the transport is
  // aborted, and further calls return the same error.
  absl::StatusOr<StepOutput> RunStep(const StepInput& input);

  // The next step of this executor will have these samples, mini_batch of them: their inputs may be
  // gathered from now on. For where StepInput::next_samples does not say so, as another executor
  // runs the step before it. Called as RunStep; not within a run of steps without a flush.
  void GatherAhead(std::span<const int64_t> samples);

  // Ends the step under way and all later ones with `status`. Safe from any thread.
  void Abort(const absl::Status& status) { machine_->Abort(status); }

  // INVALID_ARGUMENT, naming the tensor, if the stages of this device cannot run a step whose
  // samples are not all valid.
  absl::Status CheckPartialBatches() const;

  // The totals of the batch that the device's stages read, over these samples of the data set.
  absl::StatusOr<std::vector<at::Tensor>> TotalsOf(std::span<const int64_t> samples);

  // Nodes whose result depends on how the batch is cut, where it is, by name.
  std::vector<std::string> BatchDependentNodes() const;

 private:
  Executor(const Program& program, DevicePlan plan, const ExecutorOptions& options);

  const Program& program_;
  const DevicePlan plan_;
  const ExecutorOptions options_;
  std::unique_ptr<DeviceEffects> effects_;
  std::unique_ptr<StepMachine> machine_;  // Goes first: its transfers use the effects.
};

}  // namespace stagewright
