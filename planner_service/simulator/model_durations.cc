#include "planner_service/simulator/model_durations.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/check.h"
#include "common/cost/collectives.h"
#include "common/cost/parameters.h"
#include "common/cost/update.h"
#include "common/memory/stage_costs.h"
#include "planner_service/simulator/durations.h"

namespace stagewright {
namespace {

// Bytes an optimizer step of a stage goes over: what is held for its trainable parameters.
Bytes TrainedBytes(const Graph& graph, const Program& program, StageId stage, Optimizer optimizer) {
  Bytes bytes = ResidentBytesOf(graph, program.stages, {stage}, optimizer, program.training);
  for (ParameterId id : ParametersOf(graph, program.stages[stage.index()].nodes)) {
    if (!graph.parameter(id).trainable) bytes -= graph.parameter(id).SizeBytes();
  }
  return bytes;
}

Bytes GradientsOf(const Graph& graph, const std::vector<NodeId>& nodes) {
  Bytes bytes = 0;
  for (ParameterId id : ParametersOf(graph, nodes)) {
    if (graph.parameter(id).trainable) bytes += graph.parameter(id).SizeBytes();
  }
  for (NodeId node : nodes) {
    if (graph.node(node).cost.has_value()) bytes += graph.node(node).cost->parameter_bytes;
  }
  return bytes;
}

// Parameters that are updated.
int64_t UpdatedBy(const Graph& graph, const std::vector<NodeId>& nodes) {
  int64_t count = 0;
  for (ParameterId id : ParametersOf(graph, nodes)) count += graph.parameter(id).trainable ? 1 : 0;
  for (NodeId node : nodes) {
    const auto& cost = graph.node(node).cost;
    count += cost.has_value() && cost->parameter_bytes > 0 ? 1 : 0;
  }
  return count;
}

// Gradient bytes of the largest share of what replicas share out; else all.
double LargestShare(const Reduction& reduction) {
  const auto bytes = static_cast<double>(reduction.bytes);
  return reduction.sharded ? bytes / static_cast<double>(reduction.devices.size()) : bytes;
}

class ModelDurations : public Durations {
 public:
  ModelDurations(const Graph& graph, const Program& program, const Cluster& cluster,
                 const CostModel& costs, Optimizer optimizer);

  Nanos Of(DeviceId device, const Action& action) const override;
  Nanos UntilMark(DeviceId device, const Action& pass, int32_t node) const override;
  Transfer TransferOf(const Action& send) const override;
  std::vector<double> LinkRates() const override { return link_rates_; }

 private:
  struct Entry {
    int32_t kind;
    int64_t samples;
    OperatorTime time;
    // By node of the stage, if passes have marks: the times of the nodes before it.
    std::vector<OperatorTime> before;
  };
  struct FixedCost {
    DeviceId device;
    Nanos each_pass = 0;
  };
  struct StageTimes {
    std::vector<FixedCost> fixed;  // By replica, devices ascending.
    std::vector<Entry> entries;    // Few: shares of one stage differ by at most one sample.
    Bytes trained = 0;             // What optimizer steps go over.
    int64_t parameters = 0;        // How many they update.
    double gradients = 0;          // Bytes of which they use the gradients.
    struct Part {
      int32_t reduction;   // The one that its step names.
      Bytes trained;       // What its step goes over.
      int64_t parameters;  // How many it updates.
    };
    std::vector<Part> parts;
    bool marked = false;  // Sums wait for marks of its backward passes.
  };
  const Entry* Find(const StageTimes& times, int32_t kind, int64_t samples) const;
  void AddEntry(StageId stage, int32_t kind, int64_t samples);
  void AddFixedCosts(const DeviceProgram& device);
  void FindTrained(const Graph& graph, StageId stage, Optimizer optimizer);
  void AddPart(const Action& step);
  Nanos StepTime(const StageTimes& times, int32_t kind, const Action& step) const;
  Nanos FixedCostOf(const StageTimes& times, DeviceId device) const;
  // How large a send or receive is.
  Bytes BytesOf(const Action& transfer) const;

  const Program& program_;
  const Cluster& cluster_;
  const CostModel& costs_;
  std::vector<StageTimes> stages_;
  std::vector<Nanos> collectives_;  // By reduction.
  std::vector<double> link_rates_;
};

ModelDurations::ModelDurations(const Graph& graph, const Program& program, const Cluster& cluster,
                               const CostModel& costs, Optimizer optimizer)
    : program_(program), cluster_(cluster), costs_(costs), stages_(program.stages.size()) {
  for (const Link& link : cluster.links()) link_rates_.push_back(link.bytes_per_second);
  for (const Reduction& reduction : program.reductions) {
    const auto time = reduction.sharded ? ShareExchangeTime : AllReduceTime;
    collectives_.push_back(time(cluster, reduction.devices, reduction.bytes));
  }
  for (size_t stage = 0; stage < stages_.size(); ++stage)
    FindTrained(graph, StageId(static_cast<int64_t>(stage)), optimizer);
  for (const DeviceProgram& device : program.devices) {
    for (const auto* section : {&device.prologue, &device.body, &device.epilogue}) {
      for (const ProgramAction& item : *section) {
        for (const PassMark& mark : item.after_marks)
          stages_[(*section)[mark.action].action.stage.index()].marked = true;
        AddPart(item.action);
      }
    }
  }
  for (const DeviceProgram& device : program.devices) {
    AddFixedCosts(device);
    const int32_t kind = cluster.device(device.device).kind;
    for (const auto* section : {&device.prologue, &device.body, &device.epilogue}) {
      for (const ProgramAction& item : *section) {
        const Action& action = item.action;
        if (!IsCompute(action.kind) || action.kind == ActionKind::kOptimizerStep) continue;
        AddEntry(action.stage, kind, action.samples.size());
      }
    }
  }
}

void ModelDurations::FindTrained(const Graph& graph, StageId stage, Optimizer optimizer) {
  StageTimes& times = stages_[stage.index()];
  times.trained = TrainedBytes(graph, program_, stage, optimizer);
  times.parameters = UpdatedBy(graph, program_.stages[stage.index()].nodes);
  const auto all = static_cast<double>(GradientsOf(graph, program_.stages[stage.index()].nodes));
  times.gradients = all;
  for (const Reduction& reduction : program_.reductions) {
    if (!reduction.sharded || reduction.stages.front() != stage) continue;
    times.gradients -= static_cast<double>(reduction.bytes) - LargestShare(reduction);
  }
  if (times.gradients < all) {
    const double own = static_cast<double>(times.trained) * (times.gradients / all);
    times.trained = Bytes(std::llround(own));
  }
  // The first pass after an update casts the weights: 4 bytes are read where 2 are written, while
  // a step reads and writes each of its own.
  times.trained += CastBytesOf(graph, program_.stages[stage.index()], costs_.precision()) * 3 / 2;
}

void ModelDurations::AddEntry(StageId stage, int32_t kind, int64_t samples) {
  StageTimes& times = stages_[stage.index()];
  if (Find(times, kind, samples) != nullptr) return;
  OperatorTime sum;
  std::vector<OperatorTime> before;
  const DeviceKind& device_kind = cluster_.kinds()[kind];
  for (NodeId node : program_.stages[stage.index()].nodes) {
    if (times.marked) before.push_back(sum);
    sum += costs_.Time(node, device_kind, samples);
  }
  for (NodeId node : program_.stages[stage.index()].replicated) {
    sum.forward += costs_.Time(node, device_kind, samples).forward;
  }
  times.entries.push_back({kind, samples, sum, std::move(before)});
}

// A stage's steps of parts follow each other in the order of their reductions.
void ModelDurations::AddPart(const Action& step) {
  if (step.kind != ActionKind::kOptimizerStep || step.channel < 0) return;
  StageTimes& times = stages_[step.stage.index()];
  int32_t before = -1;
  for (const StageTimes::Part& part : times.parts) {
    if (part.reduction == step.channel) return;
    before = std::max(before, part.reduction);
  }
  double updated = 0;
  int64_t parameters = 0;
  for (int32_t r = before + 1; r <= step.channel; ++r) {
    const Reduction& reduction = program_.reductions[r];
    if (reduction.stages != std::vector<StageId>{step.stage}) continue;
    updated += LargestShare(reduction);
    parameters += std::ssize(reduction.parameters);  // A replica's share has a part of each.
  }
  const double share = updated / times.gradients;
  times.parts.push_back({step.channel,
                         Bytes(static_cast<int64_t>(share * static_cast<double>(times.trained))),
                         parameters});
}

Nanos ModelDurations::StepTime(const StageTimes& times, int32_t kind, const Action& step) const {
  Bytes trained = times.trained;
  int64_t parameters = times.parameters;
  for (const StageTimes::Part& part : times.parts) {
    if (step.channel < 0) {
      trained -= part.trained;
      parameters -= part.parameters;
    } else if (step.channel == part.reduction) {
      trained = part.trained;
      parameters = part.parameters;
    }
  }
  return OptimizerStepTime(cluster_.kinds()[kind], trained, parameters);
}

// Passes and messages of the body, by stage: what the pipeline repeats in every step.
void ModelDurations::AddFixedCosts(const DeviceProgram& device) {
  const DeviceKind& kind = cluster_.kind_of(device.device);
  if (kind.pass_overhead == 0 && MessageCost(kind, kGiB) == 0) return;
  std::vector<int64_t> passes(stages_.size(), 0);
  std::vector<Nanos> messages(stages_.size(), 0);
  for (const ProgramAction& item : device.body) {
    const Action& action = item.action;
    if (IsCollective(action.kind) || action.kind == ActionKind::kOptimizerStep) continue;
    if (IsCompute(action.kind)) {
      ++passes[action.stage.index()];
    } else {
      messages[action.stage.index()] += MessageCost(kind, BytesOf(action));
    }
  }
  for (size_t s = 0; s < stages_.size(); ++s) {
    if (passes[s] == 0) continue;
    stages_[s].fixed.push_back({device.device, kind.pass_overhead + messages[s] / passes[s]});
  }
}

Nanos ModelDurations::FixedCostOf(const StageTimes& times, DeviceId device) const {
  const auto fixed =
      std::lower_bound(times.fixed.begin(), times.fixed.end(), device,
                       [](const FixedCost& one, DeviceId wanted) { return one.device < wanted; });
  return fixed == times.fixed.end() || fixed->device != device ? 0 : fixed->each_pass;
}

const ModelDurations::Entry* ModelDurations::Find(const StageTimes& times, int32_t kind,
                                                  int64_t samples) const {
  for (const Entry& entry : times.entries) {
    if (entry.samples == samples && entry.kind == kind) return &entry;
  }
  return nullptr;
}

Nanos ModelDurations::Of(DeviceId device, const Action& action) const {
  if (IsCollective(action.kind)) return collectives_[action.channel];
  const StageTimes& times = stages_[action.stage.index()];
  const int32_t kind = cluster_.device(device).kind;
  if (action.kind == ActionKind::kOptimizerStep) return StepTime(times, kind, action);
  const Entry* entry = Find(times, kind, action.samples.size());
  CHECK(entry != nullptr);
  const OperatorTime* time = &entry->time;
  const Nanos fixed = FixedCostOf(times, device);
  switch (action.kind) {
    case ActionKind::kForward:
    case ActionKind::kRecompute:
      return fixed + time->forward;
    case ActionKind::kBackward:
      return fixed + time->backward;
    case ActionKind::kBackwardInput:
      return fixed + time->backward_input;
    case ActionKind::kBackwardWeight:
      return fixed + time->backward_weight;
    default:
      CHECK(false);  // Transfers have no time of their own: TransferOf.
  }
}

Nanos ModelDurations::UntilMark(DeviceId device, const Action& pass, int32_t node) const {
  const Entry* entry =
      Find(stages_[pass.stage.index()], cluster_.device(device).kind, pass.samples.size());
  CHECK(entry != nullptr);
  const OperatorTime& left = entry->before[node];
  const Nanos whole = Of(device, pass);
  return whole - (pass.kind == ActionKind::kBackward ? left.backward : left.backward_weight);
}

Bytes ModelDurations::BytesOf(const Action& transfer) const {
  const Channel& channel = program_.channels[transfer.channel];
  const bool gradient =
      transfer.kind == ActionKind::kSendGradient || transfer.kind == ActionKind::kReceiveGradient;
  return (gradient ? channel.gradient_bytes_per_sample : channel.activation_bytes_per_sample) *
         transfer.samples.size();
}

Durations::Transfer ModelDurations::TransferOf(const Action& send) const {
  const Channel& channel = program_.channels[send.channel];
  const bool gradient = send.kind == ActionKind::kSendGradient;
  const Route& route = gradient ? cluster_.route(channel.target, channel.source)
                                : cluster_.route(channel.source, channel.target);
  return {route.latency, BytesOf(send), route.links};
}

}  // namespace

std::unique_ptr<Durations> MakeModelDurations(const Graph& graph, const Program& program,
                                              const Cluster& cluster, const CostModel& costs,
                                              Optimizer optimizer) {
  return std::make_unique<ModelDurations>(graph, program, cluster, costs, optimizer);
}

}  // namespace stagewright
