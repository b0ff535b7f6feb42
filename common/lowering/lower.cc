#include "common/lowering/lower.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/cost/parameters.h"
#include "common/lowering/channels.h"
#include "common/lowering/compute_order.h"
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

int64_t InFlightMicroBatches(const Stage& stage) {
  return stage.schedule.in_flight / stage.micro_batch;
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

// What all devices share.
struct Context {
  const Graph& graph;
  const Strategy& strategy;
  const LowerOptions& options;
  Slots slots;
  std::vector<ProgramStage> stages;
  Channels channels;
  std::vector<Reduction> reductions;
  StageBytes bytes;

  const Channel& ChannelOf(const Piece& piece) const { return channels.channels[piece.channel]; }

  // What is received lies in buffers that are never given back (message_buffers.h). Of
  // planning-only graphs, which nobody runs, messages come and go.
  bool InBuffers(const Channel& channel) const { return !channel.local() && graph.executable(); }

  // The outputs of a stage live until they are sent or, on the same device, used. Where a whole
  // backward pass follows they are part of what is saved.
  bool HoldsOutputs(StageId stage) const {
    return !stages[stage.index()].has_backward || strategy.stages[stage.index()].recompute ||
           bytes.split(stage);
  }
};

Bytes ActivationBytes(const Channel& channel, SampleRange samples) {
  return channel.activation_bytes_per_sample * samples.size();
}

Bytes GradientBytes(const Channel& channel, SampleRange samples) {
  return channel.gradient_bytes_per_sample * samples.size();
}

// The pass whose results flow to predecessors.
bool MakesGradients(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput;
}

// The pass after which nothing of the micro-batch is needed any more.
bool EndsBackward(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kBackwardWeight;
}

std::vector<LanePass> LaneOf(const std::vector<Task>& tasks) {
  std::vector<LanePass> lane;
  lane.reserve(tasks.size());
  for (const Task& task : tasks) {
    const LanePass::Kind kind = task.kind == ActionKind::kForward ? LanePass::Kind::kForward
                                : MakesGradients(task.kind)       ? LanePass::Kind::kGradients
                                                                  : LanePass::Kind::kOther;
    lane.push_back({kind, task.slot});
  }
  return lane;
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

// Writes the program of one device.
class DeviceLowering {
 public:
  // `forward_index` and `backward_index` map slots to indices of the body. Every device writes only
  // the entries of its own slots, so all devices share them.
  DeviceLowering(Context& context, DeviceId device, std::vector<int32_t>& forward_index,
                 std::vector<int32_t>& backward_index)
      : context_(context), forward_index_(forward_index), backward_index_(backward_index) {
    program_.device = device;
    CollectStages();
    program_.resident = ResidentBytesOf(context_.graph, context_.stages, stages_,
                                        context_.options.optimizer, context_.options.training);
    if (context_.options.training)
      program_.resident -= GradientBytesOf(context_.graph, context_.stages, stages_);
  }

  DeviceProgram Lower(const std::vector<Task>& tasks) {
    WriteSection(tasks, program_.body);
    AddLocalDependencies();
    if (context_.options.training) AddUpdates(stages_);
    return std::move(program_);
  }

  // REQUIRES: the device has one stage.
  DeviceProgram Lower(const TaskSections& sections) {
    updates_follow_ = true;
    WriteSection(sections.prologue, program_.prologue);
    WriteSection(sections.body, program_.body);
    WriteSection(sections.epilogue, program_.epilogue);
    const Stage& stage = context_.strategy.stages[stages_.front().index()];
    const ProgramStage& lowered = context_.stages[stages_.front().index()];
    const int64_t versions = InFlightMicroBatches(stage) + lowered.version_lag;
    program_.resident += (versions - 1) * WeightBytesOf(context_.graph, lowered);
    return std::move(program_);
  }

 private:
  void CollectStages() {
    for (size_t s = 0; s < context_.stages.size(); ++s) {
      const auto& devices = context_.stages[s].devices;
      if (std::find(devices.begin(), devices.end(), program_.device) != devices.end())
        stages_.push_back(StageId(static_cast<int64_t>(s)));
    }
    last_backward_.assign(context_.stages.size(), -1);
    has_gradients_.assign(context_.stages.size(), false);
    gradients_.assign(context_.stages.size(), 0);
  }

  void WriteSection(const std::vector<Task>& tasks, std::vector<ProgramAction>& section) {
    tasks_ = &tasks;
    section_ = &section;
    compute_index_.clear();
    std::fill(last_backward_.begin(), last_backward_.end(), -1);
    post_after_ = context_.options.posting.PostAfter(LaneOf(tasks));
    receives_.assign(tasks.size(), {});
    const auto n = static_cast<int32_t>(tasks.size());
    section.reserve(tasks.size() * 4);
    AddReceivesAfter(-1);
    for (int32_t c = 0; c < n; ++c) {
      AddCompute(c);
      AddSends(c);
      if (updates_follow_ && EndsBackward(tasks[c].kind)) AddUpdates(stages_);
      AddReceivesAfter(c);
    }
  }

  void AddReceivesAfter(int32_t done) {
    const int64_t end =
        std::min<int64_t>(std::ssize(*tasks_) - 1, int64_t{done} + context_.options.posting.ahead);
    for (int32_t c = done + 1; c <= end; ++c) {
      if (post_after_[c] == done) AddReceives(c, done);
    }
  }

  int32_t Add(ProgramAction action) {
    std::sort(action.after.begin(), action.after.end());
    section_->push_back(std::move(action));
    return static_cast<int32_t>(section_->size()) - 1;
  }

  SampleRange Shifted(const Task& task, SampleRange samples) const {
    const int64_t by = task.next_step ? context_.strategy.mini_batch : 0;
    return {samples.begin + by, samples.end + by};
  }

  // Receives of task `c`, posted once task `done` is.
  void AddReceives(int32_t c, int32_t done) {
    const Task& task = (*tasks_)[c];
    std::vector<int32_t> after;
    if (done >= 0) after.push_back(compute_index_[done]);
    std::vector<int32_t>& posted = receives_[c];
    if (task.kind == ActionKind::kForward) {
      for (int32_t p : context_.channels.Into(task.slot)) {
        const Piece& piece = context_.channels.pieces[p];
        const Channel& channel = context_.ChannelOf(piece);
        if (channel.local()) continue;
        posted.push_back(Add({{ActionKind::kReceiveActivation, channel.to,
                               Shifted(task, piece.samples), piece.channel},
                              after,
                              ReceivedBytes(channel, ActivationBytes(channel, piece.samples)),
                              0}));
      }
    } else if (MakesGradients(task.kind)) {
      for (int32_t p : context_.channels.OutOf(task.slot)) {
        const Piece& piece = context_.channels.pieces[p];
        const Channel& channel = context_.ChannelOf(piece);
        if (channel.local() || !channel.has_gradient) continue;
        posted.push_back(Add({{ActionKind::kReceiveGradient, channel.from,
                               Shifted(task, piece.samples), piece.channel},
                              after,
                              ReceivedBytes(channel, GradientBytes(channel, piece.samples)),
                              0}));
      }
    }
  }

  void AddCompute(int32_t c) {
    const Task& task = (*tasks_)[c];
    const Slot& slot = context_.slots[task.slot];
    ProgramAction action;
    action.action = {task.kind, slot.stage, Shifted(task, slot.samples), -1};
    action.after = std::move(receives_[c]);
    const StageMemory& own = context_.bytes.Of(slot.stage, slot.samples.size());
    switch (task.kind) {
      case ActionKind::kForward:
        ForwardMemory(task.slot, own, action);
        break;
      case ActionKind::kRecompute:
        action.acquire = own.forward;
        action.release = own.forward - own.saved;
        break;
      default:
        BackwardMemory(task, own, action);
    }
    const int32_t index = Add(std::move(action));
    compute_index_.push_back(index);
    if (task.kind == ActionKind::kForward) forward_index_[task.slot] = index;
    if (MakesGradients(task.kind)) backward_index_[task.slot] = index;
    if (EndsBackward(task.kind)) last_backward_[slot.stage.index()] = index;
  }

  void ForwardMemory(int32_t slot, const StageMemory& own, ProgramAction& action) {
    const StageId stage = context_.slots[slot].stage;
    const bool has_backward = context_.stages[stage.index()].has_backward;
    const bool keeps = has_backward && !context_.strategy.stages[stage.index()].recompute;
    Bytes outputs = 0;
    if (context_.HoldsOutputs(stage)) {
      for (int32_t p : context_.channels.OutOf(slot)) {
        const Piece& piece = context_.channels.pieces[p];
        outputs += ActivationBytes(context_.ChannelOf(piece), piece.samples);
      }
    }
    const Bytes left = outputs + (keeps ? own.saved : 0);
    action.acquire = std::max(keeps ? own.forward : own.forward_only, left);
    if (context_.bytes.Profiled(stage)) action.acquire += outputs;
    action.release = action.acquire - left;
    action.acquire += JoinedBytes(slot);
    if (has_backward) return;
    action.release += JoinedBytes(slot);
    for (int32_t p : context_.channels.Into(slot))
      action.release += InputBytes(context_.channels.pieces[p]);
  }

  // What comes in several pieces is put together in new memory, held as long as what comes whole.
  Bytes JoinedBytes(int32_t slot) const {
    if (!context_.graph.executable()) return 0;
    const std::span<const int32_t> pieces = context_.channels.Into(slot);
    Bytes bytes = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const Piece& piece = context_.channels.pieces[pieces[i]];
      const Channel& channel = context_.ChannelOf(piece);
      const auto from = [&](size_t other) {
        return context_.ChannelOf(context_.channels.pieces[pieces[other]]).from;
      };
      if ((i > 0 && from(i - 1) == channel.from) ||
          (i + 1 < pieces.size() && from(i + 1) == channel.from))
        bytes += ActivationBytes(channel, piece.samples);
    }
    return bytes;
  }

  // So are sums of gradients of a value that several pieces were made of, for one pass.
  Bytes SummedBytes(int32_t slot) const {
    const std::span<const int32_t> pieces = context_.channels.OutOf(slot);
    if (!context_.graph.executable() || pieces.size() < 2) return 0;
    std::vector<ValueRef> values;
    for (int32_t p : pieces) {
      const std::vector<ValueRef>& of_piece =
          context_.ChannelOf(context_.channels.pieces[p]).gradient_values;
      values.insert(values.end(), of_piece.begin(), of_piece.end());
    }
    std::sort(values.begin(), values.end());
    Bytes bytes = 0;
    for (auto value = values.begin(); value != values.end();) {
      const auto next = std::upper_bound(value, values.end(), *value);
      if (next - value > 1)
        bytes += context_.graph.meta(*value).SizeBytes(context_.slots[slot].samples.size());
      value = next;
    }
    return bytes;
  }

  // A pass that makes gradients to send. Received activations stay until the end of the backward
  // pass: either half may read them.
  void BackwardMemory(const Task& task, const StageMemory& own, ProgramAction& action) {
    const StageId stage = context_.slots[task.slot].stage;
    const Bytes new_gradients = EndsBackward(task.kind) ? NewGradients(stage) : 0;
    const StageMemory::Gradients& gradients = new_gradients > 0 ? own.first : own.later;
    Bytes begins = 0;  // Held when the pass begins, and of that and new things when it ends,
    Bytes ends = 0;    // messages apart.
    switch (task.kind) {
      case ActionKind::kBackwardInput:
        action.acquire = own.input_half;
        begins = own.saved;
        ends = own.between;
        break;
      case ActionKind::kBackwardWeight:
        action.acquire = gradients.weight_half;
        begins = own.between;
        ends = new_gradients;
        break;
      default:
        action.acquire = gradients.backward;
        begins = own.saved;
        ends = new_gradients;
    }
    Bytes returned = 0;
    for (int32_t p : context_.channels.Into(task.slot)) {
      const Piece& piece = context_.channels.pieces[p];
      const Channel& channel = context_.ChannelOf(piece);
      if (MakesGradients(task.kind) && channel.has_gradient)
        returned += GradientBytes(channel, piece.samples);
      if (EndsBackward(task.kind)) action.release += InputBytes(piece);
    }
    if (context_.bytes.Profiled(stage)) action.acquire += returned;
    action.acquire = std::max(action.acquire, ends + returned - begins);
    action.release += action.acquire + begins - ends - returned;
    if (EndsBackward(task.kind)) action.release += JoinedBytes(task.slot);
    if (!MakesGradients(task.kind)) return;
    const Bytes sums = SummedBytes(task.slot);
    action.acquire += sums;
    action.release += sums;
    for (int32_t p : context_.channels.OutOf(task.slot)) {
      const Piece& piece = context_.channels.pieces[p];
      const Channel& channel = context_.ChannelOf(piece);
      if (channel.has_gradient)
        action.release += ReceivedBytes(channel, GradientBytes(channel, piece.samples));
    }
  }

  Bytes ReceivedBytes(const Channel& channel, Bytes bytes) const {
    return context_.InBuffers(channel) ? 0 : bytes;
  }

  // Of the stage's parameters whose gradients no backward pass since their last update has made.
  Bytes NewGradients(StageId stage) {
    if (has_gradients_[stage.index()]) return 0;
    has_gradients_[stage.index()] = true;
    Bytes& bytes = gradients_[stage.index()];
    bytes = 0;
    for (NodeId node : context_.stages[stage.index()].nodes) {
      if (!context_.graph.needs_backward(node)) continue;
      for (ParameterId p : context_.graph.Parameters(node)) {
        const Parameter& parameter = context_.graph.parameter(p);
        if (parameter.trainable && with_gradients_.insert(p.value()).second)
          bytes += parameter.SizeBytes();
      }
    }
    return bytes;
  }

  Bytes UpdatedGradients(StageId stage) {
    if (!has_gradients_[stage.index()]) return 0;
    has_gradients_[stage.index()] = false;
    for (ParameterId p : ParametersOf(context_.graph, context_.stages[stage.index()].nodes))
      with_gradients_.erase(p.value());
    return gradients_[stage.index()];
  }

  // What the consumer of a piece gives back: the message received, or the output that a producer on
  // the same device held for it.
  Bytes InputBytes(const Piece& piece) const {
    const Channel& channel = context_.ChannelOf(piece);
    if (channel.local() && !context_.HoldsOutputs(channel.from)) return 0;
    return ReceivedBytes(channel, ActivationBytes(channel, piece.samples));
  }

  void AddSends(int32_t c) {
    const Task& task = (*tasks_)[c];
    const std::vector<int32_t> after = {compute_index_[c]};
    if (task.kind == ActionKind::kForward) {
      for (int32_t p : context_.channels.OutOf(task.slot)) {
        const Piece& piece = context_.channels.pieces[p];
        const Channel& channel = context_.ChannelOf(piece);
        if (channel.local()) continue;
        const Bytes held =
            context_.HoldsOutputs(channel.from) ? ActivationBytes(channel, piece.samples) : 0;
        Add({{ActionKind::kSendActivation, channel.from, Shifted(task, piece.samples),
              piece.channel},
             after,
             0,
             held});
      }
    } else if (MakesGradients(task.kind)) {
      for (int32_t p : context_.channels.Into(task.slot)) {
        const Piece& piece = context_.channels.pieces[p];
        const Channel& channel = context_.ChannelOf(piece);
        if (channel.local() || !channel.has_gradient) continue;
        Add({{ActionKind::kSendGradient, channel.to, Shifted(task, piece.samples), piece.channel},
             after,
             0,
             GradientBytes(channel, piece.samples)});
      }
    }
  }

  // Hand-overs between stages of this device. At the end, because the order of a schedule that
  // deadlocks may list a consumer before its producer.
  void AddLocalDependencies() {
    for (size_t c = 0; c < tasks_->size(); ++c) {
      const Task& task = (*tasks_)[c];
      std::vector<int32_t>& after = program_.body[compute_index_[c]].after;
      const size_t before = after.size();
      if (task.kind == ActionKind::kForward) {
        for (int32_t p : context_.channels.Into(task.slot)) {
          const Piece& piece = context_.channels.pieces[p];
          if (context_.ChannelOf(piece).local()) after.push_back(forward_index_[piece.producer]);
        }
      } else if (MakesGradients(task.kind)) {
        for (int32_t p : context_.channels.OutOf(task.slot)) {
          const Piece& piece = context_.channels.pieces[p];
          const Channel& channel = context_.ChannelOf(piece);
          if (channel.local() && channel.has_gradient)
            after.push_back(backward_index_[piece.consumer]);
        }
      }
      if (after.size() > before) std::sort(after.begin(), after.end());
    }
  }

  // All-reduces, in the common order, and then the optimizer steps, after the last backward passes;
  // stages whose backward passes end first come first.
  void AddUpdates(const std::vector<StageId>& stages) {
    std::vector<std::vector<int32_t>> before_step(context_.stages.size());
    std::vector<int32_t> sums;
    for (size_t r = 0; r < context_.reductions.size(); ++r) {
      std::vector<StageId> holders;
      for (StageId s : context_.reductions[r].stages) {
        if (std::binary_search(stages.begin(), stages.end(), s)) holders.push_back(s);
      }
      if (holders.empty()) continue;
      ProgramAction sum;
      sum.action = {ActionKind::kAllReduce, holders.front(), {}, static_cast<int32_t>(r)};
      for (StageId s : holders) {
        if (last_backward_[s.index()] >= 0) sum.after.push_back(last_backward_[s.index()]);
      }
      // The norm is that of summed gradients.
      if (context_.reductions[r].gradient_norm) {
        sum.after.insert(sum.after.end(), sums.begin(), sums.end());
      }
      const int32_t index = Add(std::move(sum));
      sums.push_back(index);
      for (StageId s : holders) {
        std::vector<int32_t>& before = before_step[s.index()];
        // A stage without gradients has nothing to step after the norm of those of others.
        const bool trains = !before.empty() || last_backward_[s.index()] >= 0;
        if (trains || !context_.reductions[r].gradient_norm) before.push_back(index);
      }
    }
    std::vector<StageId> by_end(stages.rbegin(), stages.rend());
    std::stable_sort(by_end.begin(), by_end.end(), [&](StageId a, StageId b) {
      return last_backward_[a.index()] < last_backward_[b.index()];
    });
    for (StageId s : by_end) {
      std::vector<int32_t> after = std::move(before_step[s.index()]);
      if (last_backward_[s.index()] >= 0) after.push_back(last_backward_[s.index()]);
      if (after.empty()) continue;
      Add({{ActionKind::kOptimizerStep, s, {}, -1}, std::move(after), 0, UpdatedGradients(s)});
    }
  }

  Context& context_;
  std::vector<int32_t>& forward_index_;
  std::vector<int32_t>& backward_index_;
  const std::vector<Task>* tasks_ = nullptr;       // Of the section,
  std::vector<ProgramAction>* section_ = nullptr;  // which is written.
  bool updates_follow_ = false;                    // Every backward pass.
  DeviceProgram program_;
  std::vector<StageId> stages_;                  // On this device, ascending.
  std::vector<int32_t> compute_index_;           // Task -> index of the section.
  std::vector<int32_t> post_after_;              // Task -> task that ends before its receives.
  std::vector<std::vector<int32_t>> receives_;   // Task -> indices of the section.
  std::vector<int32_t> last_backward_;           // By stage; -1 if it has none here.
  std::vector<bool> has_gradients_;              // By stage: since the last update.
  std::vector<Bytes> gradients_;                 // By stage: those that its passes have made.
  absl::flat_hash_set<int32_t> with_gradients_;  // Parameters.
};

}  // namespace

absl::StatusOr<Program> Lower(const Graph& graph, const Strategy& strategy, const CostModel& costs,
                              const LowerOptions& options) {
  std::vector<ProgramStage> stages = ProgramStages(graph, strategy, options.training);
  if (strategy.vertical_sync) AssignVersionLags(strategy, stages);
  Slots slots(strategy);
  ASSIGN_OR_RETURN(Channels channels,
                   MakeChannels(graph, strategy, stages, slots, options.training));
  std::vector<Reduction> reductions;
  if (options.training) reductions = MakeReductions(graph, stages);
  if (options.training && options.gradient_norm) {
    if (strategy.asynchronous) {
      return absl::InvalidArgumentError(
          "gradients of an asynchronous strategy are never all there, so their norm cannot be "
          "clipped");
    }
    reductions.push_back(MakeNormReduction(stages));
  }
  Program program;
  program.mini_batch = strategy.mini_batch;
  program.training = options.training;
  program.asynchronous = strategy.asynchronous && options.training;
  program.stages = stages;
  std::vector<std::vector<Task>> orders;
  if (!program.asynchronous) orders = DeviceOrders(strategy, stages, slots, channels);
  StageBytes bytes(graph, costs, program.stages, channels.channels,
                   SplitStages(stages.size(), slots, orders));
  Context context{graph,
                  strategy,
                  options,
                  std::move(slots),
                  std::move(stages),
                  std::move(channels),
                  std::move(reductions),
                  std::move(bytes)};
  std::vector<int32_t> forward_index(context.slots.size(), -1);
  std::vector<int32_t> backward_index(context.slots.size(), -1);
  const auto lowering = [&](size_t d) {
    return DeviceLowering(context, DeviceId(static_cast<int64_t>(d)), forward_index,
                          backward_index);
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
  program.reductions = std::move(context.reductions);
  for (DeviceProgram& device : program.devices)
    device.resident += BufferBytes(graph, program, device);
  return program;
}

}  // namespace stagewright
