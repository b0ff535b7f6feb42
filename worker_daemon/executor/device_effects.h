// What the actions of a program do on one device: LibTorch and a transport behind the StepMachine.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/data/dataset.h"
#include "common/graph/graph.h"
#include "common/program/program.h"
#include "common/training/autocast.h"
#include "worker_daemon/effects/compute_times.h"
#include "worker_daemon/effects/device_stages.h"
#include "worker_daemon/effects/receives.h"
#include "worker_daemon/effects/reductions.h"
#include "worker_daemon/effects/sends.h"
#include "worker_daemon/effects/stage_passes.h"
#include "worker_daemon/effects/step_data.h"
#include "worker_daemon/effects/step_figures.h"
#include "worker_daemon/effects/step_inputs.h"
#include "worker_daemon/executor/executor_options.h"
#include "worker_daemon/messages/buffer_pool.h"
#include "worker_daemon/messages/channel_routes.h"
#include "worker_daemon/messages/mailbox.h"
#include "worker_daemon/stage/operator_watch.h"
#include "worker_daemon/step/step_effects.h"
#include "worker_daemon/step/step_machine.h"

namespace stagewright {

// Its functions are called as StepEffects says; all others on the compute lane, between actions.
class DeviceEffects final : public StepEffects {
 public:
  // All references must outlive it; see Executor::Create. INVALID_ARGUMENT if what the program
  // needs is null; errors of DeviceStages::Create and StepInputs::Create.
  static absl::StatusOr<std::unique_ptr<DeviceEffects>> Create(
      const Graph& graph, const Program& program, const DevicePlan& plan,
      ParameterStore& parameters, const Dataset& data, ParameterOptimizer* optimizer,
      Transport* transport, const ExecutorOptions& options);

  // To call before any action runs: where transfers end and late failures go. It outlives all
  // actions.
  void Attach(StepMachine& machine) { machine_ = &machine; }

  absl::Status CheckInput(const StepInput& input) const { return inputs_->Check(input); }
  void BeginStep(const StepInput& input);
  // Waits for the figures of all passes so far.
  void AwaitFigures() { figures_->AwaitAll(); }
  // After the last step of a run, whether it succeeded or not: forgets all that was in flight.
  void EndRun();
  // After a step that succeeded. Errors of the clock.
  absl::StatusOr<StepOutput> TakeOutput(int64_t step, StepTrace trace);

  StepInputs& inputs() { return *inputs_; }
  DeviceStages& stages() { return *stages_; }

  absl::Status Compute(const StepAction& action) override;
  void StartTransfers(const std::vector<StepAction>& actions) override;
  void MoveTransfers(absl::FunctionRef<bool()> ready) override;
  absl::Status RunCollective(const StepAction& action) override;
  void AbortTransfers(const absl::Status& status) override;
  std::string Details(const StepAction& action) const override;

 private:
  DeviceEffects(Transport* transport, const ExecutorOptions& options)
      : transport_(transport), options_(options) {}

  absl::Status ComputeGuarded(const StepAction& action);
  void StartTransfer(const StepAction& action);
  void EndTransfer(const StepAction& transfer, const absl::Status& status);
  // Says, where memory ran out, how much was expected.
  absl::Status WithMemory(const StepAction& action, const absl::Status& status) const;

  Transport* const transport_;
  const ExecutorOptions options_;
  StepMachine* machine_ = nullptr;
  std::optional<MessageTypes> types_;
  std::optional<BufferPool> buffers_;  // Where messages are packed and received, inputs gathered.
  Mailbox mailbox_;
  std::optional<DeviceStages> stages_;
  std::unique_ptr<StepInputs> inputs_;
  std::optional<StepFigures> figures_;
  std::optional<ChannelRoutes> routes_;
  std::optional<Sends> sends_;
  std::optional<Receives> receives_;
  std::optional<StagePasses> passes_;
  std::optional<Reductions> reductions_;
  std::optional<ComputeTimes> times_;
  OperatorWatch operators_;
  bool time_operators_ = false;  // In the step under way.
};

}  // namespace stagewright
