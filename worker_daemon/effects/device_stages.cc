#include "worker_daemon/effects/device_stages.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace stagewright {

DeviceStages::DeviceStages(const Graph& graph, const Program& program, ParameterStore& parameters)
    : graph_(&graph), program_(&program), parameters_(&parameters) {
  for (ParameterId id : parameters.ids()) {
    if (graph.parameter(id).trainable || graph.is_state(id)) changing_.push_back(id);
  }
}

absl::StatusOr<DeviceStages> DeviceStages::Create(const Graph& graph, const Program& program,
                                                  const DevicePlan& plan,
                                                  ParameterStore& parameters,
                                                  StageOptions options) {
  DeviceStages stages(graph, program, parameters);
  options.training = program.training;
  options.mini_batch = program.mini_batch;
  for (const StagePlan& planned : plan.stages) {
    const ProgramStage& stage = program.stages[planned.stage.index()];
    options.update_batch = program.asynchronous ? stage.micro_batch : program.mini_batch;
    options.split_backward = planned.split_backward;
    auto module = StageModule::Create(graph, stage, planned.outputs, parameters, options);
    if (!module.ok()) {
      return Annotate(module.status(), absl::StrCat("device ", plan.program->device.value(),
                                                    ", stage ", planned.stage.value()));
    }
    if (program.asynchronous && (*module)->has_loss() && !graph.totals().values.empty()) {
      stages.loss_share_ =
          static_cast<double>(stage.micro_batch) / static_cast<double>(program.mini_batch);
    }
    stages.modules_[planned.stage] = *std::move(module);
  }
  return stages;
}

absl::Status DeviceStages::CheckPartialBatches() const {
  for (const auto& [stage, module] : modules_) {
    if (module->has_loss()) {
      for (ValueRef value : module->received()) {
        const TensorMeta& meta = graph_->meta(value);
        if (!meta.mixed && (!meta.DependsOnBatch() || meta.IsBatched())) continue;
        return absl::InvalidArgumentError(
            absl::StrCat(NameOf(graph_->node(value.node)),
                         " does not have its samples side by side, so it cannot be cut"));
      }
    } else if (!module->batch_dependent().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOf(graph_->node(module->batch_dependent().front())),
                       " compares samples, so those that fill up the last batch would count"));
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> DeviceStages::BatchDependentNodes() const {
  std::vector<std::string> names;
  for (const auto& [id, module] : modules_) {
    const ProgramStage& stage = program_->stages[id.index()];
    const bool whole = stage.micro_batch == program_->mini_batch && stage.devices.size() == 1;
    if (whole) continue;
    for (NodeId node : module->batch_dependent()) names.push_back(graph_->node(node).name);
  }
  return names;
}

void DeviceStages::SetLossScale(double scale) {
  for (const auto& [stage, module] : modules_) module->SetLossScale(scale);
}

void DeviceStages::BeginUpdate(const std::vector<ParameterId>& updated) {
  for (const auto& [stage, module] : modules_) module->KeepVersion();
  std::vector<ParameterId> used;
  for (ParameterId id : updated) {
    if (std::any_of(modules_.begin(), modules_.end(),
                    [&](const auto& entry) { return entry.second->Uses(id); }))
      used.push_back(id);
  }
  parameters_->Renew(used);
}

void DeviceStages::UpdateStates() {
  for (const auto& [stage, module] : modules_) {
    for (auto& [id, value] : module->TakeStates()) {
      if (program_->asynchronous) {
        parameters_->Replace(id, std::move(value));
      } else {
        parameters_->Assign(id, value);
      }
    }
  }
}

void DeviceStages::IsolateFromParameters(std::vector<at::Tensor>& outputs) const {
  for (at::Tensor& output : outputs) {
    const bool shared = std::any_of(changing_.begin(), changing_.end(), [&](ParameterId id) {
      return (*parameters_)[id].storage().is_alias_of(output.storage());
    });
    if (shared) output = output.clone();
  }
}

void DeviceStages::Reset() {
  for (const auto& [stage, module] : modules_) module->Reset();
}

}  // namespace stagewright
