#include "common/lowering/memory_ledger.h"

#include <algorithm>
#include <span>

#include "common/cost/parameters.h"

namespace stagewright {

MemoryLedger::MemoryLedger(LoweringContext& context)
    : context_(context),
      has_gradients_(context.stages.size(), false),
      gradients_(context.stages.size(), 0),
      passing_(context.stages.size()) {
  for (const PlannedReduction& planned : context.reductions) {
    const Reduction& reduction = planned.reduction;
    if (!reduction.each_pass) continue;
    const size_t stage = reduction.stages.front().index();
    const PassingBytes bytes = PassingBytesOf(context.graph, context.stages[stage], reduction);
    passing_[stage].named += bytes.named;
    passing_[stage].profiled += bytes.profiled;
    passes_.resize(context.graph.parameters().size());
    for (ParameterId id : reduction.parameters) passes_[id.index()] = true;
  }
}

Bytes MemoryLedger::Resident(const std::vector<StageId>& stages, int64_t versions) {
  const auto [known, is_new] = context_.resident.try_emplace({stages, versions}, 0);
  if (is_new) known->second = FindResident(stages, versions);
  return known->second;
}

Bytes MemoryLedger::FindResident(const std::vector<StageId>& stages, int64_t versions) const {
  const Graph& graph = context_.graph;
  const LowerOptions& options = context_.options;
  Bytes bytes =
      ResidentBytesOf(graph, context_.stages, stages, options.optimizer, options.training);
  if (options.training) bytes -= GradientBytesOf(graph, context_.stages, stages);
  if (versions > 1) {
    bytes += (versions - 1) * WeightBytesOf(graph, context_.stages[stages.front().index()]);
  }
  // Passes in flight keep those of the version that they began with.
  for (StageId stage : stages) {
    bytes += std::max<int64_t>(versions, 1) *
             CastBytesOf(graph, context_.stages[stage.index()], context_.bytes.precision());
  }
  return bytes;
}

Bytes MemoryLedger::SharedOut(const std::vector<StageId>& stages, DeviceId device) const {
  Bytes others = 0;
  for (const PlannedReduction& planned : context_.reductions) {
    const Reduction& reduction = planned.reduction;
    const StageId stage = reduction.stages.front();
    if (std::find(stages.begin(), stages.end(), stage) == stages.end()) continue;
    others += StateOfOthers(context_.graph, context_.stages[stage.index()], reduction, device,
                            context_.options.optimizer);
  }
  for (StageId stage : stages) others += passing_[stage.index()].profiled;
  return others;
}

MemoryChange MemoryLedger::Pass(const Task& task) {
  const Slot& slot = context_.slots[task.slot];
  const StageMemory& own = context_.bytes.Of(slot.stage, slot.samples.size());
  switch (task.kind) {
    case ActionKind::kForward:
      return Forward(task.slot, own);
    case ActionKind::kRecompute:
      return {own.forward, own.forward - own.saved};
    default:
      return Backward(task, own);
  }
}

Bytes MemoryLedger::ReceivedActivation(const Piece& piece) const {
  const Channel& channel = context_.ChannelOf(piece);
  return Received(channel, ActivationBytes(channel, piece));
}

Bytes MemoryLedger::ReceivedGradient(const Piece& piece) const {
  const Channel& channel = context_.ChannelOf(piece);
  return Received(channel, GradientBytes(channel, piece));
}

Bytes MemoryLedger::SentActivation(const Piece& piece) const {
  const Channel& channel = context_.ChannelOf(piece);
  return HoldsOutputs(channel.from) ? ActivationBytes(channel, piece) : 0;
}

Bytes MemoryLedger::SentGradient(const Piece& piece) const {
  return GradientBytes(context_.ChannelOf(piece), piece);
}

// What is received lies in buffers that are never given back (message_buffers.h). Of planning-only
// graphs, which nobody runs, messages come and go.
Bytes MemoryLedger::Received(const Channel& channel, Bytes bytes) const {
  return !channel.local() && context_.graph.executable() ? 0 : bytes;
}

// The outputs of a stage live until they are sent or, on the same device, used. Where a whole
// backward pass follows they are part of what is saved.
bool MemoryLedger::HoldsOutputs(StageId stage) const {
  return !context_.stages[stage.index()].has_backward ||
         context_.strategy.stages[stage.index()].recompute || context_.bytes.split(stage);
}

MemoryChange MemoryLedger::Forward(int32_t slot, const StageMemory& own) const {
  const StageId stage = context_.slots[slot].stage;
  const bool has_backward = context_.stages[stage.index()].has_backward;
  const bool keeps = has_backward && !context_.strategy.stages[stage.index()].recompute;
  Bytes outputs = 0;
  if (HoldsOutputs(stage)) {
    for (int32_t p : context_.channels.OutOf(slot)) {
      const Piece& piece = context_.PieceOf(p);
      outputs += ActivationBytes(context_.ChannelOf(piece), piece);
    }
  }
  const Bytes left = outputs + (keeps ? own.saved : 0);
  MemoryChange change;
  change.acquire = std::max(keeps ? own.forward : own.forward_only, left);
  if (context_.bytes.Profiled(stage)) change.acquire += outputs;
  change.release = change.acquire - left;
  const Bytes joined = JoinedBytes(slot);
  change.acquire += joined;
  if (!has_backward) change.release += joined + InputBytes(slot);
  return change;
}

// What comes in several pieces is put together in new memory, held as long as what comes whole.
Bytes MemoryLedger::JoinedBytes(int32_t slot) const {
  if (!context_.graph.executable()) return 0;
  const std::span<const int32_t> pieces = context_.channels.Into(slot);
  Bytes bytes = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = context_.PieceOf(pieces[i]);
    const Channel& channel = context_.ChannelOf(piece);
    const auto from = [&](size_t other) {
      return context_.ChannelOf(context_.PieceOf(pieces[other])).from;
    };
    if ((i > 0 && from(i - 1) == channel.from) ||
        (i + 1 < pieces.size() && from(i + 1) == channel.from))
      bytes += ActivationBytes(channel, piece);
  }
  return bytes;
}

// The gradients of a value that several pieces were made of are summed in new memory, for one pass.
Bytes MemoryLedger::SummedBytes(int32_t slot) const {
  const std::span<const int32_t> pieces = context_.channels.OutOf(slot);
  if (!context_.graph.executable() || pieces.size() < 2) return 0;
  std::vector<ValueRef> values;
  for (int32_t p : pieces) {
    const std::vector<ValueRef>& of_piece = context_.ChannelOf(context_.PieceOf(p)).gradient_values;
    values.insert(values.end(), of_piece.begin(), of_piece.end());
  }
  std::sort(values.begin(), values.end());
  Bytes bytes = 0;
  for (auto value = values.begin(); value != values.end();) {
    const auto next = std::upper_bound(value, values.end(), *value);
    if (next - value > 1)
      bytes += context_.bytes.types().SizeBytes(*value, context_.slots[slot].samples.size());
    value = next;
  }
  return bytes;
}

// Received activations stay until the end of the backward pass: either half may read them.
MemoryChange MemoryLedger::Backward(const Task& task, const StageMemory& own) {
  const StageId stage = context_.slots[task.slot].stage;
  Bytes new_gradients = EndsBackward(task.kind) ? NewGradients(stage) : 0;
  const StageMemory::Gradients& gradients = new_gradients > 0 ? own.first : own.later;
  if (EndsBackward(task.kind)) new_gradients += passing_[stage.index()].all();
  MemoryChange change;
  Bytes begins = 0;  // Held when the pass begins, messages apart.
  Bytes ends = 0;    // Held when it ends, by what was there or what it made, messages apart.
  switch (task.kind) {
    case ActionKind::kBackwardInput:
      change.acquire = own.input_half;
      begins = own.saved;
      ends = own.between;
      break;
    case ActionKind::kBackwardWeight:
      change.acquire = gradients.weight_half;
      begins = own.between;
      ends = new_gradients;
      break;
    default:
      change.acquire = gradients.backward;
      begins = own.saved;
      ends = new_gradients;
  }
  Bytes returned = 0;  // Gradients for predecessors, which go when they have been sent.
  if (MakesGradients(task.kind)) {
    for (int32_t p : context_.channels.Into(task.slot)) {
      const Piece& piece = context_.PieceOf(p);
      if (context_.ChannelOf(piece).has_gradient) returned += SentGradient(piece);
    }
  }
  if (context_.bytes.Profiled(stage)) change.acquire += returned;
  change.acquire = std::max(change.acquire, ends + returned - begins);
  change.release = change.acquire + begins - ends - returned;
  if (EndsBackward(task.kind)) change.release += InputBytes(task.slot) + JoinedBytes(task.slot);
  if (!MakesGradients(task.kind)) return change;
  const Bytes sums = SummedBytes(task.slot);
  change.acquire += sums;
  change.release += sums;
  for (int32_t p : context_.channels.OutOf(task.slot)) {
    const Piece& piece = context_.PieceOf(p);
    if (context_.ChannelOf(piece).has_gradient) change.release += ReceivedGradient(piece);
  }
  return change;
}

// Gradients of the stage's parameters that no backward pass since their last update has made, apart
// from those that go after every pass.
Bytes MemoryLedger::NewGradients(StageId stage) {
  if (has_gradients_[stage.index()]) return 0;
  has_gradients_[stage.index()] = true;
  Bytes& bytes = gradients_[stage.index()];
  bytes = 0;
  for (NodeId node : context_.stages[stage.index()].nodes) {
    if (!context_.graph.needs_backward(node)) continue;
    for (ParameterId p : context_.graph.Parameters(node)) {
      const Parameter& parameter = context_.graph.parameter(p);
      if (parameter.trainable && !Passes(p) && with_gradients_.insert(p.value()).second)
        bytes += parameter.SizeBytes();
    }
  }
  return bytes;
}

Bytes MemoryLedger::Update(StageId stage) {
  if (!has_gradients_[stage.index()]) return 0;
  has_gradients_[stage.index()] = false;
  for (ParameterId p : ParametersOf(context_.graph, context_.stages[stage.index()].nodes))
    with_gradients_.erase(p.value());
  return gradients_[stage.index()];
}

// What the consumer of a piece gives back: the message received, or the output that a producer on
// the same device held for it.
Bytes MemoryLedger::InputBytes(const Piece& piece) const {
  const Channel& channel = context_.ChannelOf(piece);
  if (channel.local() && !HoldsOutputs(channel.from)) return 0;
  return ReceivedActivation(piece);
}

Bytes MemoryLedger::InputBytes(int32_t slot) const {
  Bytes bytes = 0;
  for (int32_t p : context_.channels.Into(slot)) bytes += InputBytes(context_.PieceOf(p));
  return bytes;
}

}  // namespace stagewright
