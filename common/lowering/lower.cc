#include "common/lowering/lower.h"

#include <algorithm>
#include <utility>

#include "common/lowering/channels.h"
#include "common/lowering/compute_order.h"
#include "common/lowering/device_lowering.h"
#include "common/lowering/lowering_context.h"
#include "common/lowering/reductions.h"
#include "common/memory/message_buffers.h"
#include "common/memory/stage_costs.h"

namespace stagewright {
namespace {

std::vector<ProgramStage> ProgramStages(const Graph& graph, const Strategy& strategy,
                                        bool training) {
  std::vector<ProgramStage> stages;
  for (const Stage& stage : strategy.stages) {
    stages.push_back({stage.nodes, stage.replicated, stage.devices, stage.micro_batch,
                      training && HasBackward(graph, stage)});
  }
  return stages;
}

// With vertical sync: what a stage's newest version is ahead of that of the stages with most
// micro-batches in flight. Stages without a backward pass have one version and hold nobody up.
void AssignVersionLags(const Strategy& strategy, std::vector<ProgramStage>& stages) {
  int64_t most = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    if (stages[s].has_backward) most = std::max(most, InFlightMicroBatches(strategy.stages[s]));
  }
  for (size_t s = 0; s < stages.size(); ++s) {
    if (!stages[s].has_backward) continue;
    stages[s].version_lag = static_cast<int32_t>(most - InFlightMicroBatches(strategy.stages[s]));
  }
}

// By stage: whether its backward passes come in halves, as workers run all of a stage if one does.
std::vector<bool> SplitStages(size_t stages, const Slots& slots,
                              const std::vector<std::vector<Task>>& orders) {
  std::vector<bool> split(stages, false);
  for (const std::vector<Task>& tasks : orders) {
    for (const Task& task : tasks) {
      if (task.kind == ActionKind::kBackwardInput) split[slots[task.slot].stage.index()] = true;
    }
  }
  return split;
}

// What is summed after each backward pass.
PassingGradients Passing(const Graph& graph, size_t stages,
                         const std::vector<PlannedReduction>& reductions) {
  PassingGradients passing{std::vector<bool>(graph.parameters().size(), false),
                           std::vector<bool>(stages, false)};
  for (const PlannedReduction& planned : reductions) {
    if (!planned.reduction.each_pass) continue;
    passing.stages[planned.reduction.stages.front().index()] = true;
    for (ParameterId id : planned.reduction.parameters) passing.parameters[id.index()] = true;
  }
  return passing;
}

}  // namespace

absl::StatusOr<Program> Lower(const Graph& graph, const Strategy& strategy, const CostModel& costs,
                              const LowerOptions& options) {
  const MessageTypes types(graph, costs.precision());
  std::vector<ProgramStage> stages = ProgramStages(graph, strategy, options.training);
  if (strategy.vertical_sync) AssignVersionLags(strategy, stages);
  Slots slots(strategy);
  ASSIGN_OR_RETURN(Channels channels,
                   MakeChannels(types, strategy, stages, slots, options.training));
  if (options.training && options.gradient_norm && strategy.asynchronous) {
    return absl::InvalidArgumentError(
        "gradients of an asynchronous strategy are never all there, so their norm cannot be "
        "clipped");
  }
  Program program;
  program.mini_batch = strategy.mini_batch;
  program.training = options.training;
  program.asynchronous = strategy.asynchronous && options.training;
  program.stages = stages;
  std::vector<std::vector<Task>> orders;
  if (!program.asynchronous) orders = DeviceOrders(strategy, stages, slots, channels);
  const std::vector<bool> split = SplitStages(stages.size(), slots, orders);
  std::vector<PlannedReduction> reductions;
  if (options.training) {
    reductions = MakeReductions(
        graph, stages,
        {strategy.bucket_bytes, &costs, options.cluster, split, strategy.optimizer_sharding});
  }
  if (options.training && options.gradient_norm) reductions.push_back({MakeNormReduction(stages)});
  const PassingGradients passing = Passing(graph, stages.size(), reductions);
  std::vector<MicroBatchSum> sums = SumOrder(orders, stages, slots, channels, passing.stages);
  StageBytes bytes(types, costs, program.stages, channels.channels, split, passing);
  LoweringContext context{graph,
                          strategy,
                          options,
                          std::move(slots),
                          std::move(stages),
                          std::move(channels),
                          std::move(reductions),
                          std::move(bytes),
                          std::move(sums)};
  PassIndices passes(context.slots.size());
  const auto lowering = [&](size_t d) {
    return DeviceLowering(context, DeviceId(static_cast<int64_t>(d)), passes);
  };
  if (program.asynchronous) {
    std::vector<TaskSections> sections =
        AsynchronousOrders(strategy, context.stages, context.slots);
    for (size_t d = 0; d < sections.size(); ++d) {
      if (sections[d].prologue.empty()) continue;
      program.devices.push_back(lowering(d).Lower(sections[d]));
    }
  } else {
    for (size_t d = 0; d < orders.size(); ++d) {
      if (!orders[d].empty()) program.devices.push_back(lowering(d).Lower(orders[d]));
    }
  }
  program.channels = std::move(context.channels.channels);
  for (PlannedReduction& planned : context.reductions)
    program.reductions.push_back(std::move(planned.reduction));
  for (DeviceProgram& device : program.devices)
    device.resident += BufferBytes(types, program, device);
  return program;
}

}  // namespace stagewright
