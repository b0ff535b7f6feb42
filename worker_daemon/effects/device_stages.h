// The stages of a program on one device, and what an update or the end of a step does to them all.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/program/program.h"
#include "worker_daemon/stage/parameter_store.h"
#include "worker_daemon/stage/stage_module.h"
#include "worker_daemon/step/device_plan.h"

namespace stagewright {

// Not thread-safe.
class DeviceStages {
 public:
  // All references must outlive it. Of `options` all that differs between stages is set here.
  // Errors of StageModule::Create, naming device and stage.
  static absl::StatusOr<DeviceStages> Create(const Graph& graph, const Program& program,
                                             const DevicePlan& plan, ParameterStore& parameters,
                                             StageOptions options);

  // REQUIRES: the device runs the stage.
  StageModule& operator[](StageId stage) { return *modules_.at(stage); }

  // What a loss that is a sum is multiplied by for reports. Losses of the graph are each a share of
  // the batch's; of asynchronous programs, whose batches are micro-batches, the mean is reported.
  double loss_share() const { return loss_share_; }

  // INVALID_ARGUMENT, naming the tensor, if the stages cannot run a step whose samples are not all
  // valid.
  absl::Status CheckPartialBatches() const;

  // Nodes whose result depends on how the batch is cut, where it is, by name.
  std::vector<std::string> BatchDependentNodes() const;

  void SetLossScale(double scale);

  // To call before `updated` change: keeps the versions that passes in flight still need.
  void BeginUpdate(const std::vector<ParameterId>& updated);

  // Puts the values that passes gave to buffers in the place of those that they read.
  //
  // Every pass of a step reads the values that the step began with. In an asynchronous program each
  // micro-batch is a batch of its own and reads what the one before it left; those in flight keep
  // what they have read.
  void UpdateStates();

  // Copies what shares memory with a parameter or buffer that training changes: an optimizer writes
  // to parameters and the end of a step to buffers, perhaps while a reader of the values that leave
  // still runs.
  void IsolateFromParameters(std::vector<at::Tensor>& outputs) const;

  // Forgets all that is in flight.
  void Reset();

 private:
  DeviceStages(const Graph& graph, const Program& program, ParameterStore& parameters);

  const Graph* graph_;
  const Program* program_;
  ParameterStore* parameters_;
  std::vector<ParameterId> changing_;  // The store's parameters that change in training.
  std::map<StageId, std::unique_ptr<StageModule>> modules_;
  double loss_share_ = 1;
};

}  // namespace stagewright
