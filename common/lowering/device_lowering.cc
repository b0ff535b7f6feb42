#include "common/lowering/device_lowering.h"

#include <algorithm>
#include <set>
#include <utility>

namespace stagewright {
namespace {

std::vector<LanePass> LaneOf(const Slots& slots, const std::vector<Task>& tasks) {
  std::vector<LanePass> lane;
  lane.reserve(tasks.size());
  for (const Task& task : tasks) {
    const LanePass::Kind kind = task.kind == ActionKind::kForward ? LanePass::Kind::kForward
                                : MakesGradients(task.kind)       ? LanePass::Kind::kGradients
                                                                  : LanePass::Kind::kOther;
    lane.push_back({kind, slots[task.slot].stage.value(), task.slot});
  }
  return lane;
}

}  // namespace

DeviceLowering::DeviceLowering(LoweringContext& context, DeviceId device, PassIndices& passes)
    : context_(context), passes_(passes), ledger_(context) {
  program_.device = device;
  for (size_t s = 0; s < context.stages.size(); ++s) {
    const auto& devices = context.stages[s].devices;
    if (std::find(devices.begin(), devices.end(), device) != devices.end())
      stages_.push_back(StageId(static_cast<int64_t>(s)));
  }
  last_backward_.assign(context.stages.size(), -1);
  kept_.assign(context.stages.size(), 0);
}

DeviceProgram DeviceLowering::Lower(const std::vector<Task>& tasks) {
  program_.resident = ledger_.Resident(stages_, 1) - ledger_.SharedOut(stages_, program_.device);
  WriteSection(tasks, program_.body);
  AddLocalDependencies();
  if (context_.options.training) AddUpdates();
  return std::move(program_);
}

DeviceProgram DeviceLowering::Lower(const TaskSections& sections) {
  const size_t stage = stages_.front().index();
  program_.resident =
      ledger_.Resident(stages_, InFlightMicroBatches(context_.strategy.stages[stage]) +
                                    context_.stages[stage].version_lag);
  updates_follow_ = true;
  WriteSection(sections.prologue, program_.prologue);
  WriteSection(sections.body, program_.body);
  WriteSection(sections.epilogue, program_.epilogue);
  return std::move(program_);
}

void DeviceLowering::WriteSection(const std::vector<Task>& tasks,
                                  std::vector<ProgramAction>& section) {
  tasks_ = &tasks;
  section_ = &section;
  compute_index_.clear();
  std::fill(last_backward_.begin(), last_backward_.end(), -1);
  post_after_ = context_.options.posting.PostAfter(LaneOf(context_.slots, tasks));
  receives_.assign(tasks.size(), {});
  const auto n = static_cast<int32_t>(tasks.size());
  section.reserve(tasks.size() * 4);
  AddReceivesAfter(-1);
  for (int32_t c = 0; c < n; ++c) {
    AddCompute(c);
    AddSends(c);
    if (updates_follow_ && EndsBackward(tasks[c].kind)) AddUpdates();
    AddReceivesAfter(c);
  }
}

int32_t DeviceLowering::Add(ProgramAction action) {
  std::sort(action.after.begin(), action.after.end());
  section_->push_back(std::move(action));
  return static_cast<int32_t>(section_->size()) - 1;
}

// Samples of the next step are counted on from the mini-batch.
SampleRange DeviceLowering::Shifted(const Task& task, SampleRange samples) const {
  const int64_t by = task.next_step ? context_.strategy.mini_batch : 0;
  return {samples.begin + by, samples.end + by};
}

void DeviceLowering::AddReceivesAfter(int32_t done) {
  const int64_t end =
      std::min<int64_t>(std::ssize(*tasks_) - 1, int64_t{done} + context_.options.posting.ahead);
  for (int32_t c = done + 1; c <= end; ++c) {
    if (post_after_[c] == done) AddReceives(c, done);
  }
}

// Receives of task `c`, posted once task `done` is.
void DeviceLowering::AddReceives(int32_t c, int32_t done) {
  const Task& task = (*tasks_)[c];
  const auto after = [&] {
    return done < 0 ? std::vector<int32_t>() : std::vector<int32_t>{compute_index_[done]};
  };
  std::vector<int32_t>& posted = receives_[c];
  if (task.kind == ActionKind::kForward) {
    for (int32_t p : context_.channels.Into(task.slot)) {
      const Piece& piece = context_.PieceOf(p);
      const Channel& channel = context_.ChannelOf(piece);
      if (channel.local()) continue;
      posted.push_back(Add({{ActionKind::kReceiveActivation, channel.to,
                             Shifted(task, piece.samples), piece.channel},
                            after(),
                            ledger_.ReceivedActivation(piece),
                            0}));
    }
  } else if (MakesGradients(task.kind)) {
    for (int32_t p : context_.channels.OutOf(task.slot)) {
      const Piece& piece = context_.PieceOf(p);
      const Channel& channel = context_.ChannelOf(piece);
      if (channel.local() || !channel.has_gradient) continue;
      posted.push_back(Add({{ActionKind::kReceiveGradient, channel.from,
                             Shifted(task, piece.samples), piece.channel},
                            after(),
                            ledger_.ReceivedGradient(piece),
                            0}));
    }
  }
}

void DeviceLowering::AddCompute(int32_t c) {
  const Task& task = (*tasks_)[c];
  const Slot& slot = context_.slots[task.slot];
  const MemoryChange memory = ledger_.Pass(task);
  const int32_t index = Add({{task.kind, slot.stage, Shifted(task, slot.samples), -1},
                             std::move(receives_[c]),
                             memory.acquire,
                             memory.release});
  compute_index_.push_back(index);
  if (task.kind == ActionKind::kForward) passes_.forward[task.slot] = index;
  if (MakesGradients(task.kind)) passes_.backward[task.slot] = index;
  if (EndsBackward(task.kind)) passes_.last[task.slot] = index;
  if (EndsBackward(task.kind)) last_backward_[slot.stage.index()] = index;
}

void DeviceLowering::AddSends(int32_t c) {
  const Task& task = (*tasks_)[c];
  if (task.kind == ActionKind::kForward) {
    for (int32_t p : context_.channels.OutOf(task.slot)) {
      const Piece& piece = context_.PieceOf(p);
      const Channel& channel = context_.ChannelOf(piece);
      if (channel.local()) continue;
      Add({{ActionKind::kSendActivation, channel.from, Shifted(task, piece.samples), piece.channel},
           {compute_index_[c]},
           0,
           ledger_.SentActivation(piece)});
    }
  } else if (MakesGradients(task.kind)) {
    for (int32_t p : context_.channels.Into(task.slot)) {
      const Piece& piece = context_.PieceOf(p);
      const Channel& channel = context_.ChannelOf(piece);
      if (channel.local() || !channel.has_gradient) continue;
      Add({{ActionKind::kSendGradient, channel.to, Shifted(task, piece.samples), piece.channel},
           {compute_index_[c]},
           0,
           ledger_.SentGradient(piece)});
    }
  }
}

// Hand-overs between stages of this device. At the end, because the order of a schedule that
// deadlocks may list a consumer before its producer.
void DeviceLowering::AddLocalDependencies() {
  for (size_t c = 0; c < tasks_->size(); ++c) {
    const Task& task = (*tasks_)[c];
    std::vector<int32_t>& after = program_.body[compute_index_[c]].after;
    const size_t before = after.size();
    if (task.kind == ActionKind::kForward) {
      for (int32_t p : context_.channels.Into(task.slot)) {
        const Piece& piece = context_.PieceOf(p);
        if (context_.ChannelOf(piece).local()) after.push_back(passes_.forward[piece.producer]);
      }
    } else if (MakesGradients(task.kind)) {
      for (int32_t p : context_.channels.OutOf(task.slot)) {
        const Piece& piece = context_.PieceOf(p);
        const Channel& channel = context_.ChannelOf(piece);
        if (channel.local() && channel.has_gradient)
          after.push_back(passes_.backward[piece.consumer]);
      }
    }
    if (after.size() > before) std::sort(after.begin(), after.end());
  }
}

// The sum of what a pass has made for a reduction. The first of a step leaves the device's share of
// it, to which later ones add theirs.
int32_t DeviceLowering::AddSum(const MicroBatchSum& sum, size_t reduction, int32_t pass) {
  const PlannedReduction& planned = context_.reductions[reduction];
  const ProgramStage& stage = context_.stages[sum.stage.index()];
  const int64_t begin = sum.index * stage.micro_batch;
  ProgramAction item;
  item.action = {ActionKind::kReduceScatter,
                 sum.stage,
                 {begin, begin + stage.micro_batch},
                 static_cast<int32_t>(reduction)};
  if (planned.mark == PlannedReduction::kEnd) {
    item.after.push_back(pass);
  } else {
    item.after_marks.push_back({pass, planned.mark});
  }
  item.acquire = planned.copy;
  item.release = planned.copy + PassingBytesOf(context_.graph, stage, planned.reduction).all();
  return Add(std::move(item));
}

// Sums of the gradients of each micro-batch, in the common order.
void DeviceLowering::AddSums(std::vector<std::vector<int32_t>>& before_step) {
  std::map<int32_t, std::vector<int32_t>> sums;  // By slot.
  for (const MicroBatchSum& sum : context_.sums) {
    const auto& devices = context_.stages[sum.stage.index()].devices;
    const auto replica = std::find(devices.begin(), devices.end(), program_.device);
    if (replica == devices.end()) continue;
    const int32_t slot =
        context_.slots.at(sum.stage, sum.index, static_cast<int32_t>(replica - devices.begin()));
    for (size_t r = 0; r < context_.reductions.size(); ++r) {
      const Reduction& reduction = context_.reductions[r].reduction;
      if (!reduction.each_pass || reduction.stages.front() != sum.stage) continue;
      sums[slot].push_back(AddSum(sum, r, passes_.last[slot]));
      before_step[sum.stage.index()].push_back(sums[slot].back());
    }
  }
  AwaitSums(sums);
}

// The next pass of the stage, a forward one too, waits for the sums of what a pass has made: whole
// gradients go before anything else is held.
void DeviceLowering::AwaitSums(const std::map<int32_t, std::vector<int32_t>>& sums) {
  std::map<StageId, const std::vector<int32_t>*> awaited;
  std::set<StageId> summed;
  for (size_t c = 0; c < tasks_->size(); ++c) {
    const Task& task = (*tasks_)[c];
    const StageId stage = context_.slots[task.slot].stage;
    const std::vector<int32_t>* const before = std::exchange(awaited[stage], nullptr);
    if (before != nullptr) {
      std::vector<int32_t>& after = (*section_)[compute_index_[c]].after;
      after.insert(after.end(), before->begin(), before->end());
      std::sort(after.begin(), after.end());
    }
    const auto own = sums.find(task.slot);
    if (!EndsBackward(task.kind) || own == sums.end()) continue;
    awaited[stage] = &own->second;
    if (summed.insert(stage).second) KeepShares(own->second);
  }
}

void DeviceLowering::KeepShares(const std::vector<int32_t>& sums) {
  for (int32_t index : sums) {
    ProgramAction& sum = (*section_)[index];
    const size_t stage = sum.action.stage.index();
    const Reduction& reduction = context_.reductions[sum.action.channel].reduction;
    const Bytes kept = KeptSums(context_.graph, context_.stages[stage], reduction, program_.device);
    sum.release -= kept;
    kept_[stage] += kept;
  }
}

// Sums of gradients, in the common order, after the last backward passes or their marks. By stage:
// those before its optimizer step.
std::vector<std::vector<int32_t>> DeviceLowering::AddReductions() {
  std::vector<std::vector<int32_t>> before_step(context_.stages.size());
  AddSums(before_step);
  std::vector<int32_t> sums;
  for (const std::vector<int32_t>& of_stage : before_step)
    sums.insert(sums.end(), of_stage.begin(), of_stage.end());
  for (size_t r = 0; r < context_.reductions.size(); ++r) {
    std::vector<StageId> holders;
    const Reduction& reduction = context_.reductions[r].reduction;
    if (reduction.each_pass) continue;
    const int32_t mark = context_.reductions[r].mark;
    for (StageId s : reduction.stages) {
      if (std::binary_search(stages_.begin(), stages_.end(), s)) holders.push_back(s);
    }
    if (holders.empty()) continue;
    ProgramAction sum;
    sum.action = {reduction.sharded ? ActionKind::kReduceScatter : ActionKind::kAllReduce,
                  holders.front(),
                  {},
                  static_cast<int32_t>(r)};
    const Bytes copy = context_.reductions[r].copy;
    for (StageId s : holders) {
      const int32_t last = last_backward_[s.index()];
      if (last < 0) continue;
      const bool beside = mark != PlannedReduction::kEnd;
      if (beside) {
        sum.after_marks.push_back({last, mark});
      } else {
        sum.after.push_back(last);
      }
      // Where the pass before it lets go of as much, the peak is that of the pass.
      if (beside || copy > (*section_)[last].release) sum.acquire = sum.release = copy;
    }
    // The norm is that of summed gradients.
    if (reduction.gradient_norm) {
      sum.after.insert(sum.after.end(), sums.begin(), sums.end());
    }
    const int32_t index = Add(std::move(sum));
    sums.push_back(index);
    for (StageId s : holders) {
      std::vector<int32_t>& before = before_step[s.index()];
      // A stage without gradients has nothing to step after the norm of those of others.
      const bool trains = !before.empty() || last_backward_[s.index()] >= 0;
      if (trains || !reduction.gradient_norm) before.push_back(index);
    }
  }
  return before_step;
}

// The device updates what has been summed while the last bucket of the stage is.
void DeviceLowering::AddEarlyUpdate(StageId stage) {
  std::vector<int32_t> sums;  // Buckets of the stage: sums of the section, in their order.
  for (size_t i = 0; i < section_->size(); ++i) {
    const ProgramAction& item = (*section_)[i];
    if (!item.after_marks.empty() && item.action.stage == stage)
      sums.push_back(static_cast<int32_t>(i));
  }
  if (sums.empty()) return;
  const int32_t last = (*section_)[sums.back()].action.channel;
  if (!context_.reductions[last].update_before) return;
  sums.pop_back();
  const int32_t before = (*section_)[sums.back()].action.channel;
  sums.push_back(last_backward_[stage.index()]);
  Add({{ActionKind::kOptimizerStep, stage, {}, before}, std::move(sums), 0, 0});
}

// What has been updated in shares is exchanged after the first step that updates it.
void DeviceLowering::AddGathers() {
  for (size_t r = 0; r < context_.reductions.size(); ++r) {
    const Reduction& reduction = context_.reductions[r].reduction;
    const auto index = static_cast<int32_t>(r);
    if (!reduction.sharded) continue;
    const StageId stage = reduction.stages.front();
    const auto updates = [&](const ProgramAction& item) {
      const int32_t last = item.action.channel;
      return item.action.kind == ActionKind::kOptimizerStep && item.action.stage == stage &&
             (last < 0 || last >= index);
    };
    const auto step = std::find_if(section_->begin(), section_->end(), updates);
    if (step == section_->end()) continue;  // The stage is not on this device.
    const Bytes copy = context_.reductions[r].copy;
    const auto after = static_cast<int32_t>(step - section_->begin());
    Add({{ActionKind::kAllGather, stage, {}, index}, {after}, copy, copy});
  }
}

// Sums of gradients and then the optimizer steps; stages whose backward passes end first come
// first.
void DeviceLowering::AddUpdates() {
  std::vector<std::vector<int32_t>> before_step = AddReductions();
  std::vector<StageId> by_end(stages_.rbegin(), stages_.rend());
  std::stable_sort(by_end.begin(), by_end.end(), [&](StageId a, StageId b) {
    return last_backward_[a.index()] < last_backward_[b.index()];
  });
  for (StageId s : by_end) {
    if (!updates_follow_ && !context_.options.gradient_norm) AddEarlyUpdate(s);
    std::vector<int32_t> after = std::move(before_step[s.index()]);
    if (last_backward_[s.index()] >= 0) after.push_back(last_backward_[s.index()]);
    if (after.empty()) continue;
    Add({{ActionKind::kOptimizerStep, s, {}, -1},
         std::move(after),
         0,
         ledger_.Update(s) + kept_[s.index()]});
  }
  AddGathers();
}

}  // namespace stagewright
