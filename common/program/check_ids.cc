#include "common/program/check_ids.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "common/program/unroll.h"

namespace stagewright {
namespace {

template <typename... Args>
absl::Status Bad(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

template <typename Id>
bool In(Id id, size_t size) {
  return id.valid() && id.index() < size;
}

absl::Status CheckStage(const Program& program, size_t index) {
  const ProgramStage& stage = program.stages[index];
  const int64_t mini_batch = program.mini_batch;
  if (stage.devices.empty()) return Bad("stages[", index, "].devices is empty");
  if (stage.micro_batch < 1 || mini_batch % stage.micro_batch != 0) {
    return Bad("stages[", index, "].micro_batch ", stage.micro_batch,
               " does not divide the mini-batch ", mini_batch);
  }
  for (DeviceId device : stage.devices) {
    if (!device.valid()) return Bad("stages[", index, "].devices: ", device.value());
  }
  if (stage.version_lag < 0) {
    return Bad("stages[", index, "].version_lag is negative: ", stage.version_lag);
  }
  if (stage.version_lag > 0 && (!program.asynchronous || !stage.has_backward)) {
    return Bad("stages[", index, "].version_lag is ", stage.version_lag, " where there is ",
               program.asynchronous ? "no backward pass" : "one version of the weights");
  }
  return absl::OkStatus();
}

absl::Status CheckChannel(const Channel& channel, size_t index, size_t stages) {
  if (!In(channel.from, stages) || !In(channel.to, stages)) {
    return Bad("channels[", index, "]: stages ", channel.from.value(), " -> ", channel.to.value(),
               " do not exist");
  }
  if (!channel.source.valid() || !channel.target.valid())
    return Bad("channels[", index, "]: a device is missing");
  if (channel.activation_bytes_per_sample < 0 || channel.gradient_bytes_per_sample < 0)
    return Bad("channels[", index, "]: bytes per sample are negative");
  return absl::OkStatus();
}

absl::Status CheckMark(const Program& program, const std::vector<ProgramAction>& section,
                       const PassMark& mark) {
  if (mark.action < 0 || mark.action >= static_cast<int32_t>(section.size()))
    return Bad("it waits for a mark of action ", mark.action, ", which does not exist");
  const Action& pass = section[mark.action].action;
  if (pass.kind != ActionKind::kBackward && pass.kind != ActionKind::kBackwardWeight)
    return Bad("it waits for a mark of action ", mark.action, ", which makes no gradients");
  if (!In(pass.stage, program.stages.size()) || mark.node < 0 ||
      mark.node >= std::ssize(program.stages[pass.stage.index()].nodes)) {
    return Bad("it waits for mark ", mark.node, " of action ", mark.action,
               ", whose stage has no such node");
  }
  return absl::OkStatus();
}

// An optimizer step of a part of what its stage trains.
absl::Status CheckPart(const Program& program, const Action& step) {
  if (!In(ChannelId(step.channel), program.reductions.size()))
    return Bad("reduction ", step.channel, " does not exist");
  const Reduction& reduction = program.reductions[step.channel];
  if (reduction.gradient_norm || reduction.stages != std::vector<StageId>{step.stage})
    return Bad("reduction ", step.channel, " is not of its stage alone");
  return absl::OkStatus();
}

absl::Status CheckAction(const Program& program, const std::vector<ProgramAction>& section,
                         size_t index) {
  const auto& [action, after, acquire, release, after_marks] = section[index];
  if (!In(action.stage, program.stages.size())) return Bad("the stage does not exist");
  const bool transfer = IsTransfer(action.kind);
  const bool sum = IsCollective(action.kind);
  const bool part = action.kind == ActionKind::kOptimizerStep && action.channel != -1;
  if (part) RETURN_IF_ERROR(CheckPart(program, action));
  const size_t channels = transfer ? program.channels.size() : sum ? program.reductions.size() : 0;
  if ((transfer || sum) ? !In(ChannelId(action.channel), channels) : !part && action.channel != -1)
    return Bad(sum ? "reduction " : "channel ", action.channel, " does not exist");
  const bool each_pass =
      action.kind == ActionKind::kReduceScatter && program.reductions[action.channel].each_pass;
  const bool has_samples = (!sum || each_pass) && action.kind != ActionKind::kOptimizerStep;
  const int64_t end = program.mini_batch * (HasSections(program) ? 2 : 1);
  if (has_samples &&
      (action.samples.empty() || action.samples.begin < 0 || action.samples.end > end)) {
    return Bad("its samples are not within the mini-batch [0,", end, ")");
  }
  for (int32_t before : after) {
    if (before < 0 || before >= static_cast<int32_t>(section.size()))
      return Bad("it waits for action ", before, ", which does not exist");
  }
  for (const PassMark& mark : after_marks) RETURN_IF_ERROR(CheckMark(program, section, mark));
  if (!after_marks.empty() && !IsSum(action.kind)) return Bad("only sums wait for marks");
  if (acquire < 0 || release < 0) return Bad("it acquires or releases negative bytes");
  return absl::OkStatus();
}

absl::Status CheckValues(const Graph& graph, const std::vector<ValueRef>& values) {
  for (ValueRef value : values) {
    if (!In(value.node, graph.nodes().size()))
      return Bad("node ", value.node.value(), " is not in the graph");
    if (value.output < 0 ||
        static_cast<size_t>(value.output) >= graph.node(value.node).outputs.size()) {
      return Bad("output ", value.output, " of node ", value.node.value(), " is not in the graph");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckIds(const Program& program) {
  if (program.mini_batch < 1) return Bad("mini_batch is ", program.mini_batch);
  for (size_t s = 0; s < program.stages.size(); ++s) RETURN_IF_ERROR(CheckStage(program, s));
  for (size_t c = 0; c < program.channels.size(); ++c)
    RETURN_IF_ERROR(CheckChannel(program.channels[c], c, program.stages.size()));
  for (size_t r = 0; r < program.reductions.size(); ++r) {
    for (DeviceId device : program.reductions[r].devices) {
      if (!device.valid()) return Bad("reductions[", r, "].devices: ", device.value());
    }
    for (StageId stage : program.reductions[r].stages) {
      if (!stage.valid() || stage.index() >= program.stages.size())
        return Bad("reductions[", r, "].stages: ", stage.value());
    }
    const Reduction& reduction = program.reductions[r];
    if (reduction.sharded && (reduction.gradient_norm || reduction.stages.size() != 1)) {
      return Bad("reductions[", r, "].sharded: what is shared out is of one stage's replicas, not ",
                 reduction.gradient_norm ? "a norm" : "of several stages");
    }
    if (reduction.each_pass && (!reduction.sharded || program.asynchronous)) {
      return Bad("reductions[", r,
                 "].each_pass: is of what is shared out in a synchronous program");
    }
  }
  DeviceId last;
  for (const DeviceProgram& device : program.devices) {
    if (!device.device.valid() || device.device <= last)
      return Bad("devices are not in order of their ids, each once");
    last = device.device;
    const std::array<std::pair<const char*, const std::vector<ProgramAction>*>, 3> sections = {
        {{"prologue", &device.prologue}, {"body", &device.body}, {"epilogue", &device.epilogue}}};
    for (const auto& [name, section] : sections) {
      for (size_t i = 0; i < section->size(); ++i) {
        const absl::Status status = CheckAction(program, *section, i);
        if (!status.ok()) {
          return Annotate(status, absl::StrCat("device ", last.value(), ", ", name, " action ", i,
                                               " ", ToString((*section)[i].action)));
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckIds(const Graph& graph, const Program& program) {
  RETURN_IF_ERROR(CheckIds(program));
  for (size_t s = 0; s < program.stages.size(); ++s) {
    for (const auto* nodes : {&program.stages[s].nodes, &program.stages[s].replicated}) {
      for (NodeId node : *nodes) {
        if (!In(node, graph.nodes().size()))
          return Bad("stages[", s, "]: node ", node.value(), " is not in the graph");
      }
    }
  }
  for (size_t c = 0; c < program.channels.size(); ++c) {
    for (const auto* values : {&program.channels[c].values, &program.channels[c].gradient_values}) {
      RETURN_IF_ERROR(Annotate(CheckValues(graph, *values), absl::StrCat("channels[", c, "]")));
    }
  }
  for (size_t r = 0; r < program.reductions.size(); ++r) {
    for (ParameterId id : program.reductions[r].parameters) {
      if (!In(id, graph.parameters().size()))
        return Bad("reductions[", r, "]: parameter ", id.value(), " is not in the graph");
    }
  }
  return absl::OkStatus();
}

}  // namespace stagewright
