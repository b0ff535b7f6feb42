#include "worker_daemon/stage/compiled_stage.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/training/autocast.h"
#include "worker_daemon/torch/weight_casts.h"

namespace stagewright {
namespace {

class StageCompiler {
 public:
  StageCompiler(const Graph& graph, const ParameterStore& parameters, const StageOptions& options)
      : graph_(graph), parameters_(parameters), options_(options) {}

  absl::StatusOr<CompiledStage> Compile(const ProgramStage& stage, std::vector<ValueRef> outputs) {
    stage_.outputs = std::move(outputs);
    RETURN_IF_ERROR(AddNodes(stage));
    RETURN_IF_ERROR(AddStates());
    RETURN_IF_ERROR(FindOutputs());
    const std::vector<SegmentNode> nodes = SegmentNodes();
    std::vector<std::vector<int32_t>> last_uses = LastUses(nodes, stage_.given);
    for (size_t n = 0; n < nodes.size(); ++n) stage_.steps[n].last_uses = std::move(last_uses[n]);
    if (options_.split_backward) {
      std::vector<int32_t> given = stage_.output_places;
      if (stage_.loss.has_value()) given.push_back(*stage_.loss);
      stage_.segments = PlanSegments(nodes, stage_.num_places, stage_.first_own(), given);
    }
    return std::move(stage_);
  }

 private:
  absl::Status AddNodes(const ProgramStage& stage);
  void FindReceivedTypes();
  absl::Status AddStates();
  absl::Status FindOutputs();
  std::vector<SegmentNode> SegmentNodes() const;

  const Graph& graph_;
  const ParameterStore& parameters_;
  const StageOptions& options_;
  CompiledStage stage_;
};

absl::Status StageCompiler::AddNodes(const ProgramStage& stage) {
  const std::vector<NodeId> nodes = NodeOrder(graph_).Of(stage);
  const WeightCasts casts(options_.precision);
  std::set<ParameterId> trained;
  std::set<NodeId> members(nodes.begin(), nodes.end());
  std::set<ValueRef> received;
  std::set<InputId> inputs;
  std::set<TotalId> totals;
  for (NodeId id : nodes) {
    for (ValueRef value : graph_.Values(id)) {
      if (!members.contains(value.node)) received.insert(value);
    }
    inputs.insert(graph_.Inputs(id).begin(), graph_.Inputs(id).end());
    totals.insert(graph_.Totals(id).begin(), graph_.Totals(id).end());
  }
  stage_.received.assign(received.begin(), received.end());
  stage_.inputs.assign(inputs.begin(), inputs.end());
  stage_.totals.assign(totals.begin(), totals.end());
  FindReceivedTypes();
  for (ValueRef value : stage_.received) {
    stage_.place[value] = stage_.num_places++;
    stage_.needs_gradient.push_back(options_.training && stage.has_backward &&
                                    graph_.needs_backward(value.node) &&
                                    IsFloating(graph_.meta(value).dtype));
  }
  const TensorSource parameters = [this](const Argument& argument) -> const at::Tensor& {
    return parameters_[std::get<ParameterId>(argument.value)];
  };
  for (NodeId id : nodes) {
    const Node& node = graph_.node(id);
    for (ParameterId parameter : graph_.Parameters(id)) {
      if (!parameters_[parameter].defined()) {
        return absl::InvalidArgumentError(absl::StrCat(
            NameOf(node), ": parameter \"", graph_.parameter(parameter).name, "\" is not loaded"));
      }
      if (parameters_[parameter].requires_grad()) trained.insert(parameter);
    }
    bool evaluates_otherwise = false, changes_buffers = false;
    if (KeyedDropout::IsDropout(node)) {
      ASSIGN_OR_RETURN(KeyedDropout call, KeyedDropout::Create(node, id, options_.training));
      stage_.steps.push_back({id, call, stage_.num_places, {}});
    } else {
      ASSIGN_OR_RETURN(OperatorCall call,
                       OperatorCall::Bind(node, options_.device, options_.training, parameters));
      evaluates_otherwise = call.evaluates_otherwise();
      changes_buffers = options_.training && call.changes_buffers();
      stage_.steps.push_back({id, std::move(call), stage_.num_places, {}});
    }
    stage_.steps.back().casts_weights = casts.Applies(node.target);
    stage_.steps.back().changes_buffers = changes_buffers;
    if (node.batch_dependent && !evaluates_otherwise) stage_.batch_dependent.push_back(id);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      stage_.place[{id, static_cast<int32_t>(i)}] = stage_.num_places++;
    }
  }
  stage_.trained.assign(trained.begin(), trained.end());
  stage_.trained_place.assign(graph_.parameters().size(), -1);
  for (size_t i = 0; i < stage_.trained.size(); ++i)
    stage_.trained_place[stage_.trained[i].index()] = static_cast<int32_t>(i);
  return absl::OkStatus();
}

void StageCompiler::FindReceivedTypes() {
  GraphTypes types;
  if (IsMixed(options_.precision)) {
    const bool cpu = options_.device.is_cpu();
    types = TypesOfGraph(graph_, options_.precision, cpu ? AutocastList::kCpu : AutocastList::kGpu);
  }
  for (ValueRef value : stage_.received) {
    stage_.received_types.push_back(types.nodes.empty()
                                        ? graph_.meta(value).dtype
                                        : types.nodes[value.node.index()].results[value.output]);
  }
}

absl::Status StageCompiler::AddStates() {
  stage_.state_place.assign(graph_.parameters().size(), -1);
  stage_.state_of_place.assign(stage_.num_places, -1);
  for (const StateUpdate& update : graph_.state_updates()) {
    const auto place = stage_.place.find(update.value);
    if (place == stage_.place.end() || place->second < stage_.first_own()) continue;
    if (!parameters_[update.parameter].defined()) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOf(graph_.node(update.value.node)), ": buffer \"",
                       graph_.parameter(update.parameter).name, "\" is not loaded"));
    }
    stage_.state_place[update.parameter.index()] = static_cast<int32_t>(stage_.states.size());
    stage_.state_of_place[place->second] = static_cast<int32_t>(stage_.states.size());
    stage_.states.push_back({update.parameter, place->second});
  }
  return absl::OkStatus();
}

absl::Status StageCompiler::FindOutputs() {
  const auto own = [&](ValueRef value) -> std::optional<int32_t> {
    const auto place = stage_.place.find(value);
    if (place == stage_.place.end() || place->second < stage_.first_own()) return std::nullopt;
    return place->second;
  };
  for (ValueRef value : stage_.outputs) {
    const std::optional<int32_t> place = own(value);
    if (!place.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("the stage is to give output ", value.output,
                                                     " of node ", value.node.value(),
                                                     ", which is not in it"));
    }
    stage_.output_places.push_back(*place);
  }
  if (graph_.loss().has_value()) stage_.loss = own(*graph_.loss());
  if (graph_.prediction().has_value()) stage_.prediction = own(*graph_.prediction());
  stage_.given.assign(stage_.num_places, false);
  for (int32_t place : stage_.output_places) stage_.given[place] = true;
  for (const auto& place : {stage_.loss, stage_.prediction})
    if (place.has_value()) stage_.given[*place] = true;
  for (const CompiledStage::State& state : stage_.states) stage_.given[state.place] = true;
  return absl::OkStatus();
}

std::vector<SegmentNode> StageCompiler::SegmentNodes() const {
  std::vector<SegmentNode> nodes;
  nodes.reserve(stage_.steps.size());
  for (const CompiledStage::Step& step : stage_.steps) {
    SegmentNode& node = nodes.emplace_back(MakeSegmentNode(graph_, step.node));
    for (ValueRef value : graph_.Values(step.node)) node.reads.push_back(stage_.place.at(value));
    for (size_t i = 0; i < graph_.node(step.node).outputs.size(); ++i)
      node.makes.push_back(step.first_value + static_cast<int32_t>(i));
  }
  return nodes;
}

}  // namespace

absl::StatusOr<CompiledStage> CompileStage(const Graph& graph, const ProgramStage& stage,
                                           std::vector<ValueRef> outputs,
                                           const ParameterStore& parameters,
                                           const StageOptions& options) {
  return StageCompiler(graph, parameters, options).Compile(stage, std::move(outputs));
}

}  // namespace stagewright
