// Making a stage ready to run. stage_module.cc: its passes.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "worker_daemon/stage/stage_module.h"

namespace stagewright {
absl::StatusOr<std::unique_ptr<StageModule>> StageModule::Create(const Graph& graph,
                                                                 const ProgramStage& stage,
                                                                 std::vector<ValueRef> outputs,
                                                                 const ParameterStore& parameters,
                                                                 const StageOptions& options) {
  std::unique_ptr<StageModule> module(new StageModule(graph, parameters, options));
  module->outputs_ = std::move(outputs);
  module->version_lag_ = static_cast<size_t>(std::max(stage.version_lag, 0));
  RETURN_IF_ERROR(module->AddNodes(stage));
  RETURN_IF_ERROR(module->AddStates());
  RETURN_IF_ERROR(module->FindOutputs());
  const std::vector<SegmentNode> nodes = module->SegmentNodes();
  std::vector<std::vector<int32_t>> last_uses = LastUses(nodes, module->given_);
  for (size_t n = 0; n < nodes.size(); ++n) module->steps_[n].last_uses = std::move(last_uses[n]);
  if (options.split_backward) {
    std::vector<int32_t> given = module->output_places_;
    if (module->loss_.has_value()) given.push_back(*module->loss_);
    module->segments_ = PlanSegments(nodes, module->num_places_,
                                     static_cast<int32_t>(module->received_.size()), given);
  }
  return module;
}

absl::Status StageModule::AddNodes(const ProgramStage& stage) {
  const std::vector<NodeId> nodes = NodeOrder(*graph_).Of(stage);
  std::set<ParameterId> trained;
  std::set<NodeId> members(nodes.begin(), nodes.end());
  std::set<ValueRef> received;
  std::set<InputId> inputs;
  std::set<TotalId> totals;
  for (NodeId id : nodes) {
    for (ValueRef value : graph_->Values(id)) {
      if (!members.contains(value.node)) received.insert(value);
    }
    inputs.insert(graph_->Inputs(id).begin(), graph_->Inputs(id).end());
    totals.insert(graph_->Totals(id).begin(), graph_->Totals(id).end());
  }
  received_.assign(received.begin(), received.end());
  inputs_.assign(inputs.begin(), inputs.end());
  totals_.assign(totals.begin(), totals.end());
  for (ValueRef value : received_) {
    place_[value] = num_places_++;
    needs_gradient_.push_back(options_.training && stage.has_backward &&
                              graph_->needs_backward(value.node) &&
                              IsFloating(graph_->meta(value).dtype));
  }
  const TensorSource parameters = [this](const Argument& argument) -> const at::Tensor& {
    return (*parameters_)[std::get<ParameterId>(argument.value)];
  };
  for (NodeId id : nodes) {
    const Node& node = graph_->node(id);
    for (ParameterId parameter : graph_->Parameters(id)) {
      if (!(*parameters_)[parameter].defined()) {
        return absl::InvalidArgumentError(absl::StrCat(
            NameOf(node), ": parameter \"", graph_->parameter(parameter).name, "\" is not loaded"));
      }
      if ((*parameters_)[parameter].requires_grad()) trained.insert(parameter);
    }
    bool evaluates_otherwise = false, changes_buffers = false;
    if (KeyedDropout::IsDropout(node)) {
      ASSIGN_OR_RETURN(KeyedDropout call, KeyedDropout::Create(node, id, options_.training));
      steps_.push_back({id, call, num_places_, {}});
    } else {
      ASSIGN_OR_RETURN(OperatorCall call,
                       OperatorCall::Bind(node, options_.device, options_.training, parameters));
      evaluates_otherwise = call.evaluates_otherwise();
      changes_buffers = options_.training && call.changes_buffers();
      steps_.push_back({id, std::move(call), num_places_, {}});
    }
    steps_.back().casts_weights = casts_.Applies(node.target);
    steps_.back().changes_buffers = changes_buffers;
    if (node.batch_dependent && !evaluates_otherwise) batch_dependent_.push_back(id);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      place_[{id, static_cast<int32_t>(i)}] = num_places_++;
    }
  }
  trained_.assign(trained.begin(), trained.end());
  trained_place_.assign(graph_->parameters().size(), -1);
  for (size_t i = 0; i < trained_.size(); ++i)
    trained_place_[trained_[i].index()] = static_cast<int32_t>(i);
  return absl::OkStatus();
}

absl::Status StageModule::AddStates() {
  state_place_.assign(graph_->parameters().size(), -1);
  state_of_place_.assign(num_places_, -1);
  const auto first_own = static_cast<int32_t>(received_.size());
  for (const StateUpdate& update : graph_->state_updates()) {
    const auto place = place_.find(update.value);
    if (place == place_.end() || place->second < first_own) continue;
    if (!(*parameters_)[update.parameter].defined()) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOf(graph_->node(update.value.node)), ": buffer \"",
                       graph_->parameter(update.parameter).name, "\" is not loaded"));
    }
    state_place_[update.parameter.index()] = static_cast<int32_t>(states_.size());
    state_of_place_[place->second] = static_cast<int32_t>(states_.size());
    states_.push_back({update.parameter, place->second, {}});
  }
  return absl::OkStatus();
}

absl::Status StageModule::FindOutputs() {
  const auto first_own = static_cast<int32_t>(received_.size());
  const auto own = [&](ValueRef value) -> std::optional<int32_t> {
    const auto place = place_.find(value);
    if (place == place_.end() || place->second < first_own) return std::nullopt;
    return place->second;
  };
  for (ValueRef value : outputs_) {
    const std::optional<int32_t> place = own(value);
    if (!place.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("the stage is to give output ", value.output,
                                                     " of node ", value.node.value(),
                                                     ", which is not in it"));
    }
    output_places_.push_back(*place);
  }
  if (graph_->loss().has_value()) loss_ = own(*graph_->loss());
  if (graph_->prediction().has_value()) prediction_ = own(*graph_->prediction());
  given_.assign(num_places_, false);
  for (int32_t place : output_places_) given_[place] = true;
  for (const auto& place : {loss_, prediction_})
    if (place.has_value()) given_[*place] = true;
  for (const State& state : states_) given_[state.place] = true;
  return absl::OkStatus();
}

std::vector<SegmentNode> StageModule::SegmentNodes() const {
  std::vector<SegmentNode> nodes;
  nodes.reserve(steps_.size());
  for (const Step& step : steps_) {
    SegmentNode& node = nodes.emplace_back(MakeSegmentNode(*graph_, step.node));
    for (ValueRef value : graph_->Values(step.node)) node.reads.push_back(place_.at(value));
    for (size_t i = 0; i < graph_->node(step.node).outputs.size(); ++i)
      node.makes.push_back(step.first_value + static_cast<int32_t>(i));
  }
  return nodes;
}

}  // namespace stagewright
