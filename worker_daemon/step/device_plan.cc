#include "worker_daemon/step/device_plan.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/program/check_ids.h"
#include "common/program/step_samples.h"
#include "common/program/unroll.h"
#include "worker_daemon/checkpoint/ownership.h"

namespace stagewright {
namespace {

class Planning {
 public:
  Planning(const Graph& graph, const Program& program) : graph_(graph), program_(program) {}

  absl::StatusOr<DevicePlan> Run(DeviceId device) {
    for (const DeviceProgram& candidate : program_.devices) {
      if (candidate.device == device) plan_.program = &candidate;
    }
    if (plan_.program == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("the program has no work for device ", device.value()));
    }
    RETURN_IF_ERROR(CheckIds(graph_, program_));
    CollectStages(device);
    RETURN_IF_ERROR(CheckStages());
    CollectStateAndInputs();
    plan_.has_sections = HasSections(program_);
    plan_.prologue.program = &plan_.program->prologue;
    plan_.body.program = &plan_.program->body;
    plan_.epilogue.program = &plan_.program->epilogue;
    CollectActions();
    for (SectionPlan* section : Sections()) {
      section->actions.resize(section->program->size());
      for (size_t i = 0; i < section->actions.size(); ++i)
        RETURN_IF_ERROR(PlanAction(*section, static_cast<int32_t>(i)));
      if (program_.asynchronous) {
        PlanEveryUpdate(*section);
      } else {
        PlanUpdates(*section);
      }
    }
    return std::move(plan_);
  }

 private:
  std::vector<SectionPlan*> Sections() { return {&plan_.prologue, &plan_.body, &plan_.epilogue}; }

  // A pass of a stage, whichever step of the run it belongs to.
  std::pair<StageId, SampleRange> PassOf(const Action& action) const {
    return {action.stage, SamplesInStep(0, action.samples, program_.mini_batch).range};
  }

  absl::Status Bad(const Action& action, absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("device ", plan_.program->device.value(), ", ", ToString(action), ": ", what));
  }

  // A part of Validate, which the daemon calls before: what would break the look-ups here.
  absl::Status CheckStages() const {
    for (const auto* section :
         {&plan_.program->prologue, &plan_.program->body, &plan_.program->epilogue}) {
      for (const ProgramAction& entry : *section) {
        if (!plan_.Has(entry.action.stage))
          return Bad(entry.action, "the stage is not on this device");
      }
    }
    return absl::OkStatus();
  }

  void CollectStages(DeviceId device) {
    for (size_t s = 0; s < program_.stages.size(); ++s) {
      const std::vector<DeviceId>& devices = program_.stages[s].devices;
      if (std::find(devices.begin(), devices.end(), device) == devices.end()) continue;
      StagePlan stage;
      stage.stage = StageId(s);
      std::set<ValueRef> outputs;
      for (size_t c = 0; c < program_.channels.size(); ++c) {
        const Channel& channel = program_.channels[c];
        if (channel.from == stage.stage && channel.source == device) {
          stage.out.push_back(static_cast<int32_t>(c));
          outputs.insert(channel.values.begin(), channel.values.end());
        }
        if (channel.to == stage.stage && channel.target == device)
          stage.into.push_back(static_cast<int32_t>(c));
      }
      stage.outputs.assign(outputs.begin(), outputs.end());
      plan_.stages.push_back(std::move(stage));
    }
  }

  std::vector<NodeId> NodesOf(StageId stage) const {
    std::vector<NodeId> nodes = program_.stages[stage.index()].nodes;
    const auto& replicated = program_.stages[stage.index()].replicated;
    nodes.insert(nodes.end(), replicated.begin(), replicated.end());
    return nodes;
  }

  void CollectStateAndInputs() {
    std::set<ParameterId> parameters;
    std::set<InputId> inputs;
    std::vector<TotalId> totals;
    for (StagePlan& stage : plan_.stages) {
      for (ParameterId id : StateOfStage(graph_, program_.stages[stage.stage.index()]))
        parameters.insert(id);
      std::set<InputId> read;
      for (NodeId node : NodesOf(stage.stage)) {
        totals.insert(totals.end(), graph_.Totals(node).begin(), graph_.Totals(node).end());
        read.insert(graph_.Inputs(node).begin(), graph_.Inputs(node).end());
        const std::optional<InputId> target = ClassTarget(graph_);
        if (target.has_value() && graph_.prediction()->node == node) stage.target = target;
      }
      stage.inputs.assign(read.begin(), read.end());
      inputs.insert(read.begin(), read.end());
      if (stage.target.has_value()) inputs.insert(*stage.target);
    }
    plan_.totals = PlanTotals(graph_, std::move(totals));
    parameters.insert(plan_.totals.parameters.begin(), plan_.totals.parameters.end());
    inputs.insert(plan_.totals.inputs.begin(), plan_.totals.inputs.end());
    plan_.parameters.assign(parameters.begin(), parameters.end());
    plan_.inputs.assign(inputs.begin(), inputs.end());
  }

  // What kinds of passes there are, whichever section they are in.
  void CollectActions() {
    for (SectionPlan* section : Sections()) {
      for (const ProgramAction& entry : *section->program) {
        const Action& action = entry.action;
        if (IsCompute(action.kind)) ++section->computes;
        if (action.kind == ActionKind::kForward) forwards_.insert(PassOf(action));
        if (action.kind == ActionKind::kRecompute) recomputed_.insert(PassOf(action));
        if (action.kind != ActionKind::kBackwardInput) continue;
        for (StagePlan& stage : plan_.stages)
          stage.split_backward = stage.split_backward || stage.stage == action.stage;
      }
    }
  }

  // The action of that kind and stage whose samples contain `samples`; -1 if there is none.
  static int32_t Find(const SectionPlan& section, ActionKind kind, StageId stage,
                      SampleRange samples) {
    for (size_t i = 0; i < section.program->size(); ++i) {
      const Action& action = (*section.program)[i].action;
      if (action.kind == kind && action.stage == stage && action.samples.Contains(samples))
        return static_cast<int32_t>(i);
    }
    return -1;
  }

  absl::Status PlanAction(SectionPlan& section, int32_t index) {
    const Action& action = (*section.program)[index].action;
    ActionPlan& plan = section.actions[index];
    switch (action.kind) {
      case ActionKind::kForward:
        plan.recomputed = recomputed_.contains(PassOf(action));
        return PlanLocal(action, /*forward=*/true, plan);
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput:
        if (!forwards_.contains(PassOf(action)))
          return Bad(action, "no forward pass of the same samples");
        return PlanLocal(action, /*forward=*/false, plan);
      case ActionKind::kSendActivation:
        plan.producer = Find(section, ActionKind::kForward, action.stage, action.samples);
        break;
      case ActionKind::kSendGradient:
        plan.producer = Find(section, ActionKind::kBackward, action.stage, action.samples);
        if (plan.producer < 0)
          plan.producer = Find(section, ActionKind::kBackwardInput, action.stage, action.samples);
        break;
      case ActionKind::kAllReduce:
      case ActionKind::kReduceScatter:
      case ActionKind::kAllGather:
        plan_.reduces = true;
        plan_.communicates |= program_.reductions[action.channel].devices.size() > 1;
        PlanMarks(section, index);
        return absl::OkStatus();
      case ActionKind::kReceiveActivation:
      case ActionKind::kReceiveGradient:
        plan_.communicates = true;
        return absl::OkStatus();
      default:
        return absl::OkStatus();
    }
    plan_.communicates = true;
    if (plan.producer < 0) return Bad(action, "nothing on this device makes what is sent");
    const std::vector<int32_t>& after = (*section.program)[index].after;
    if (std::find(after.begin(), after.end(), plan.producer) == after.end())
      return Bad(action, "is not after the action that makes what is sent");
    section.actions[plan.producer].sends.push_back(index);
    return absl::OkStatus();
  }

  void PlanMarks(SectionPlan& section, int32_t sum) const {
    const ProgramAction& entry = (*section.program)[sum];
    const std::vector<ParameterId>& summed = program_.reductions[entry.action.channel].parameters;
    for (const PassMark& mark : entry.after_marks) {
      std::vector<MarkPlan>& marks = section.actions[mark.action].marks;
      auto plan = std::find_if(marks.begin(), marks.end(),
                               [&](const MarkPlan& other) { return other.node == mark.node; });
      if (plan == marks.end()) plan = marks.insert(marks.end(), {mark.node, {}});
      plan->parameters.insert(plan->parameters.end(), summed.begin(), summed.end());
    }
  }

  // Cuts the result of a forward or backward into the micro-batches of the stages that read it.
  absl::Status PlanLocal(const Action& action, bool forward, ActionPlan& plan) const {
    const StagePlan& stage = plan_.OfStage(action.stage);
    for (int32_t c : forward ? stage.out : stage.into) {
      const Channel& channel = program_.channels[c];
      const auto& values = forward ? channel.values : channel.gradient_values;
      if (!channel.local() || values.empty() || (!forward && !channel.has_gradient)) continue;
      if (plan_.has_sections)
        return Bad(action, "an asynchronous program has one stage per device");
      const StageId reader = forward ? channel.to : channel.from;
      for (const auto& [of, samples] : forwards_) {
        if (of != reader) continue;
        const SampleRange piece = Intersect(samples, action.samples);
        if (!piece.empty()) plan.local.push_back({c, piece});
      }
    }
    return absl::OkStatus();
  }

  // What training the stage changes and is not in `but`.
  std::set<ParameterId> TrainedBy(StageId stage, const std::set<ParameterId>& but) const {
    std::set<ParameterId> trained;
    for (NodeId node : NodesOf(stage)) {
      for (ParameterId id : graph_.Parameters(node)) {
        if (graph_.parameter(id).trainable && !but.contains(id)) trained.insert(id);
      }
    }
    return trained;
  }

  // Parameters of the stage alone that are summed by the reduction that the step names and those
  // before it.
  std::vector<ParameterId> SummedUpTo(const Action& step) const {
    std::vector<ParameterId> summed;
    for (int32_t r = 0; r <= step.channel; ++r) {
      const Reduction& reduction = program_.reductions[r];
      if (reduction.stages != std::vector<StageId>{step.stage}) continue;
      summed.insert(summed.end(), reduction.parameters.begin(), reduction.parameters.end());
    }
    return summed;
  }

  // A parameter that several stages of the device share is updated by the last of their steps.
  void PlanUpdates(SectionPlan& section) {
    std::set<ParameterId> done;
    for (size_t i = 0; i < section.actions.size(); ++i) {
      const Action& action = (*section.program)[i].action;
      if (action.kind != ActionKind::kOptimizerStep || action.channel < 0) continue;
      for (ParameterId id : SummedUpTo(action)) {
        if (done.insert(id).second) section.actions[i].updates.push_back(id);
      }
      std::sort(section.actions[i].updates.begin(), section.actions[i].updates.end());
    }
    for (size_t i = section.actions.size(); i-- > 0;) {
      const Action& action = (*section.program)[i].action;
      if (action.kind != ActionKind::kOptimizerStep || action.channel >= 0) continue;
      const std::set<ParameterId> updates = TrainedBy(action.stage, done);
      done.insert(updates.begin(), updates.end());
      section.actions[i].updates.assign(updates.begin(), updates.end());
    }
  }

  // Updates follow every backward pass.
  void PlanEveryUpdate(SectionPlan& section) {
    for (size_t i = 0; i < section.actions.size(); ++i) {
      const Action& action = (*section.program)[i].action;
      if (action.kind != ActionKind::kOptimizerStep) continue;
      const std::set<ParameterId> updates = TrainedBy(action.stage, {});
      section.actions[i].updates.assign(updates.begin(), updates.end());
    }
  }

  const Graph& graph_;
  const Program& program_;
  DevicePlan plan_;
  std::set<std::pair<StageId, SampleRange>> forwards_, recomputed_;  // In any step.
};

}  // namespace

bool DevicePlan::Has(StageId stage) const {
  return std::any_of(stages.begin(), stages.end(),
                     [&](const StagePlan& plan) { return plan.stage == stage; });
}

const StagePlan& DevicePlan::OfStage(StageId stage) const {
  const auto found =
      std::lower_bound(stages.begin(), stages.end(), stage,
                       [](const StagePlan& plan, StageId id) { return plan.stage < id; });
  CHECK(found != stages.end() && found->stage == stage);
  return *found;
}

std::optional<InputId> ClassTarget(const Graph& graph) {
  if (!graph.prediction().has_value()) return std::nullopt;
  const TensorMeta& prediction = graph.meta(*graph.prediction());
  const bool row_each = prediction.shape.size() == 2 && prediction.shape[0] == SymInt{1, 0} &&
                        prediction.Samples() == SampleLayout{};
  if (!row_each || !IsFloating(prediction.dtype)) return std::nullopt;
  std::optional<InputId> target;
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Input& input = graph.inputs()[i];
    if (input.role != InputRole::kTarget) continue;
    if (target.has_value() || input.meta.dtype != DType::kInt64 || input.meta.shape.size() != 1 ||
        input.meta.shape[0] != prediction.shape[0]) {
      return std::nullopt;
    }
    target = InputId(i);
  }
  return target;
}

TotalsPlan PlanTotals(const Graph& graph, std::vector<TotalId> values) {
  const BatchTotals& totals = graph.totals();
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  std::vector<bool> needed(totals.nodes.size(), false);
  for (TotalId id : values) needed[totals.values[id.index()].node.index()] = true;
  std::set<InputId> inputs;
  std::set<ParameterId> parameters;
  TotalsPlan plan;
  for (size_t n = totals.nodes.size(); n-- > 0;) {
    if (!needed[n]) continue;
    plan.nodes.push_back(static_cast<int32_t>(n));
    ForEachLeaf(totals.nodes[n], [&](const Argument& leaf) {
      if (const auto* value = std::get_if<ValueRef>(&leaf.value))
        needed[value->node.index()] = true;
      if (const auto* input = std::get_if<InputId>(&leaf.value)) inputs.insert(*input);
      if (const auto* parameter = std::get_if<ParameterId>(&leaf.value))
        parameters.insert(*parameter);
    });
  }
  std::reverse(plan.nodes.begin(), plan.nodes.end());
  plan.values = std::move(values);
  plan.inputs.assign(inputs.begin(), inputs.end());
  plan.parameters.assign(parameters.begin(), parameters.end());
  return plan;
}

absl::StatusOr<DevicePlan> MakeDevicePlan(const Graph& graph, const Program& program,
                                          DeviceId device) {
  return Planning(graph, program).Run(device);
}

}  // namespace stagewright
