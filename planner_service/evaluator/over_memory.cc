#include "planner_service/evaluator/over_memory.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/cost/parameters.h"
#include "common/memory/message_buffers.h"
#include "common/memory/stage_costs.h"

namespace stagewright {
namespace {

bool RunsOn(const ProgramStage& stage, DeviceId device) {
  return std::find(stage.devices.begin(), stage.devices.end(), device) != stage.devices.end();
}

std::string ActivationAdvice(const Program& program, DeviceId device) {
  int64_t micro_batch = 1;
  for (const ProgramStage& stage : program.stages) {
    if (RunsOn(stage, device)) micro_batch = std::max(micro_batch, stage.micro_batch);
  }
  if (micro_batch == 1) return "fewer samples in flight, more devices or more memory per device";
  return absl::StrCat("a micro-batch smaller than ", micro_batch,
                      ", fewer samples in flight or more devices");
}

// Something here could be shared out by replicas and is not.
bool HasWholeState(const Program& program, DeviceId device) {
  return std::any_of(program.reductions.begin(), program.reductions.end(),
                     [&](const Reduction& reduction) {
                       const auto& devices = reduction.devices;
                       return !reduction.sharded && !reduction.gradient_norm &&
                              reduction.stages.size() == 1 && !program.asynchronous &&
                              std::find(devices.begin(), devices.end(), device) != devices.end();
                     });
}

// Gradients here could go after every micro-batch and do not.
bool HasWholeGradients(const Program& program, DeviceId device) {
  return std::any_of(program.reductions.begin(), program.reductions.end(),
                     [&](const Reduction& reduction) {
                       const auto& devices = reduction.devices;
                       if (reduction.each_pass || reduction.gradient_norm ||
                           reduction.stages.size() != 1 || program.asynchronous)
                         return false;
                       const ProgramStage& stage = program.stages[reduction.stages.front().index()];
                       return stage.micro_batch < program.mini_batch &&
                              std::find(devices.begin(), devices.end(), device) != devices.end();
                     });
}

std::string OptimizerAdvice(Optimizer optimizer, Bytes state, bool may_share) {
  if (may_share) {
    return absl::StrCat("replicas that share out the optimizer state (--shard-optimizer states), ",
                        OptimizerAdvice(optimizer, state, false));
  }
  if (optimizer == Optimizer::kAdam) {
    return absl::StrCat("SGD instead of Adam (saves ", FormatBytes(state),
                        "; with momentum half of that) or more devices");
  }
  return absl::StrCat("SGD without momentum (saves ", FormatBytes(state), ") or more devices");
}

}  // namespace

MemoryParts PartsOf(const MessageTypes& types, const Program& program, const DeviceProgram& device,
                    Optimizer optimizer, Bytes peak) {
  const Graph& graph = types.graph();
  std::vector<StageId> stages;
  for (size_t s = 0; s < program.stages.size(); ++s) {
    if (RunsOn(program.stages[s], device.device))
      stages.push_back(StageId(static_cast<int64_t>(s)));
  }
  const Bytes gradients =
      program.training ? GradientBytesOf(graph, program.stages, stages) : Bytes{0};
  MemoryParts parts;
  parts.optimizer =
      ResidentBytesOf(graph, program.stages, stages, optimizer, program.training) -
      ResidentBytesOf(graph, program.stages, stages, Optimizer::kSgd, program.training);
  for (const Reduction& reduction : program.reductions) {
    const StageId stage = reduction.stages.front();
    if (std::find(stages.begin(), stages.end(), stage) == stages.end()) continue;
    parts.optimizer -=
        StateOfOthers(graph, program.stages[stage.index()], reduction, device.device, optimizer);
  }
  parts.parameters = device.resident - parts.optimizer - BufferBytes(types, program, device);
  parts.parameters += std::min(gradients, peak - device.resident);
  parts.activations = peak - parts.parameters - parts.optimizer;
  return parts;
}

absl::Status OverMemory(const MessageTypes& types, const Cluster& cluster, const Program& program,
                        const DeviceProgram& device, Optimizer optimizer, Bytes peak) {
  const MemoryParts parts = PartsOf(types, program, device, optimizer, peak);
  const Bytes budget = cluster.device(device.device).memory;
  const Bytes largest = std::max({parts.parameters, parts.optimizer, parts.activations});
  std::string dominates;
  std::string advice;
  if (largest == parts.activations) {
    dominates = "activations dominate";
    advice = ActivationAdvice(program, device.device);
  } else if (largest == parts.optimizer) {
    dominates = "optimizer state dominates";
    advice = OptimizerAdvice(optimizer, parts.optimizer, HasWholeState(program, device.device));
  } else {
    dominates = "parameters and their gradients dominate";
    advice = absl::StrCat(HasWholeGradients(program, device.device)
                              ? "replicas that share out the gradients, too (--shard-optimizer "
                                "gradients), "
                              : "",
                          "more devices, so that each holds fewer parameters, or devices with ",
                          FormatBytes(peak));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "device ", device.device.value(), " '", cluster.device(device.device).name, "' needs ",
      FormatBytes(peak), " but has ", FormatBytes(budget), ": ", FormatBytes(peak - budget),
      " too much; ", dominates, " (parameters and gradients ", FormatBytes(parts.parameters),
      ", optimizer state ", FormatBytes(parts.optimizer), ", activations ",
      FormatBytes(parts.activations), "); what would help: ", advice));
}

}  // namespace stagewright
