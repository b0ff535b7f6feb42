#include "planner_service/planners/pfeife/peak_memory.h"

#include <algorithm>

#include "common/base/check.h"

namespace stagewright::pfeife {
namespace {

// Messages both ways share the ends of their links, mostly two at a time: what is sent is given
// back after this many times as long as it takes alone.
constexpr double kSharing = 2;

}  // namespace

PeakMemory::PeakMemory(const LoopedShape& shape, bool recompute, ReceivePosting posting)
    : shape_(shape),
      recompute_(recompute),
      posting_(posting),
      tasks_(shape.devices),
      most_held_(shape.slices()),
      incoming_(shape.slices()),
      outgoing_(shape.slices()),
      ends_(size_t{2} * shape.slices() * shape.micro_batches),
      releases_(shape.devices) {
  const auto passes = TopologicalPasses(shape);
  CHECK(passes.has_value());
  for (const SlicePass& pass : *passes) {
    const int32_t device = shape.device_of(pass.slice);
    std::vector<Task>& tasks = tasks_[device];
    const auto add = [&](Kind kind) {
      runs_.emplace_back(device, static_cast<int32_t>(tasks.size()));
      tasks.push_back({pass.slice, pass.micro_batch, kind});
    };
    if (pass.backward && recompute) add(Kind::kRecompute);
    add(pass.backward ? Kind::kBackward : Kind::kForward);
  }
  for (std::vector<Task>& tasks : tasks_) {
    FindPosts(tasks);
    CountHeld(tasks);
  }
}

// Whenever tasks run, what they hold depends on their order alone.
void PeakMemory::CountHeld(const std::vector<Task>& tasks) {
  std::vector<Held> now(shape_.slices());
  const auto count = [&](int32_t slice, int32_t Held::*what, int32_t change) {
    now[slice].*what += change;
    most_held_[slice].*what = std::max(most_held_[slice].*what, now[slice].*what);
  };
  const auto size = static_cast<int32_t>(tasks.size());
  for (int32_t done = -1; done < size; ++done) {
    if (done >= 0 && tasks[done].kind == Kind::kForward) count(tasks[done].slice, &Held::kept, 1);
    if (done >= 0 && tasks[done].kind == Kind::kBackward) {
      for (int32_t Held::*what : {&Held::kept, &Held::received, &Held::returned}) {
        count(tasks[done].slice, what, -1);
      }
    }
    for (int32_t c = done + 1; c < std::min(done + 1 + posting_.ahead, size); ++c) {
      if (tasks[c].post_after != done || tasks[c].kind == Kind::kRecompute) continue;
      count(tasks[c].slice, tasks[c].kind == Kind::kForward ? &Held::received : &Held::returned, 1);
    }
  }
}

void PeakMemory::FindPosts(std::vector<Task>& tasks) const {
  std::vector<LanePass> lane;
  for (const Task& task : tasks) {
    const LanePass::Kind kind = task.kind == Kind::kForward    ? LanePass::Kind::kForward
                                : task.kind == Kind::kBackward ? LanePass::Kind::kGradients
                                                               : LanePass::Kind::kOther;
    lane.push_back({kind, int64_t{task.slice} * shape_.micro_batches + task.micro_batch});
  }
  const std::vector<int32_t> after = posting_.PostAfter(lane);
  for (size_t c = 0; c < tasks.size(); ++c) tasks[c].post_after = after[c];
}

void PeakMemory::CountFlows(const SliceCosts& costs) {
  flows_.assign(shape_.slices(), {});
  for (std::vector<int32_t>& messages : incoming_) messages.clear();
  for (std::vector<int32_t>& messages : outgoing_) messages.clear();
  for (size_t i = 0; i < costs.messages.size(); ++i) {
    const SliceCosts::Message& message = costs.messages[i];
    incoming_[message.to].push_back(static_cast<int32_t>(i));
    Flow& from = flows_[message.from];
    Flow& to = flows_[message.to];
    if (!Local(message)) to.received += message.there_bytes;
    if (!Local(message) || recompute_) to.read += message.there_bytes;
    if (recompute_) from.sent += message.there_bytes;
    if (message.back < 0) continue;
    outgoing_[message.from].push_back(static_cast<int32_t>(i));
    to.made += message.back_bytes;
    from.all_returned += message.back_bytes;
    if (!Local(message)) from.returned += message.back_bytes;
  }
}

// A message that the task reads: the task starts after it, and its sender gives it back.
void PeakMemory::Arrive(const SliceCosts& costs, int32_t message, double posted, Task& task) {
  const SliceCosts::Message& m = costs.messages[message];
  const bool backward = task.kind == Kind::kBackward;
  const int32_t sender = backward ? m.to : m.from;
  const double sent = End(sender, task.micro_batch, backward);
  if (Local(m)) {
    task.start = std::max(task.start, sent);
    return;
  }
  double& lane = lanes_[2 * message + (backward ? 1 : 0)];
  const double time = backward ? m.back : m.there;
  const double begin = std::max({sent, posted, lane});
  lane = begin + time;
  task.start = std::max(task.start, lane);
  if (backward || recompute_) {
    releases_[shape_.device_of(sender)].emplace_back(begin + kSharing * time,
                                                     backward ? m.back_bytes : m.there_bytes);
  }
}

void PeakMemory::Time(const SliceCosts& costs) {
  lanes_.assign(2 * costs.messages.size(), 0);
  for (std::vector<Release>& releases : releases_) releases.clear();
  for (const auto& [device, index] : runs_) {
    std::vector<Task>& tasks = tasks_[device];
    Task& task = tasks[index];
    const int32_t s = task.slice;
    task.start = index > 0 ? tasks[index - 1].end : 0;
    double time = costs.forward[s];
    if (task.kind != Kind::kRecompute) {
      const bool backward = task.kind == Kind::kBackward;
      const double posted = task.post_after < 0 ? 0 : tasks[task.post_after].end;
      for (int32_t i : (backward ? outgoing_ : incoming_)[s]) Arrive(costs, i, posted, task);
      if (backward) time = costs.backward[s] - (recompute_ ? costs.forward[s] : 0);
    }
    task.end = task.start + time;
    if (task.kind != Kind::kRecompute) {
      End(s, task.micro_batch, task.kind == Kind::kBackward) = task.end;
    }
  }
  for (std::vector<Release>& releases : releases_) std::sort(releases.begin(), releases.end());
}

Bytes PeakMemory::Walk(int32_t device, const SliceMemory& memory) {
  const std::vector<Task>& tasks = tasks_[device];
  const auto count = static_cast<int32_t>(tasks.size());
  Bytes now = 0;
  for (int32_t s = device; s < shape_.slices(); s += shape_.devices) now += memory.resident[s];
  Bytes most = now;
  auto released = releases_[device].begin();
  const auto release = [&](double until) {
    for (; released != releases_[device].end() && released->first <= until; ++released) {
      now -= released->second;
    }
  };
  const auto post = [&](int32_t done) {
    for (int32_t c = done + 1; c < std::min(done + 1 + posting_.ahead, count); ++c) {
      if (tasks[c].post_after != done) continue;
      if (tasks[c].kind == Kind::kForward) now += flows_[tasks[c].slice].received;
      if (tasks[c].kind == Kind::kBackward) now += flows_[tasks[c].slice].returned;
    }
    most = std::max(most, now);
  };
  post(-1);
  for (int32_t c = 0; c < count; ++c) {
    const Task& task = tasks[c];
    const int32_t s = task.slice;
    const Flow& flow = flows_[s];
    const Bytes kept = memory.saved[s] + memory.outputs[s];
    Bytes taken = kept;  // When the task starts, besides its workspace.
    Bytes stays = kept;  // The part of everything there is that stays when the task ends.
    if (task.kind == Kind::kForward && recompute_) {
      taken = memory.saved[s] + flow.sent;
      stays = flow.sent;
    } else if (task.kind == Kind::kBackward) {
      taken = flow.made;
      stays = flow.made - kept - flow.read - flow.all_returned;
    }
    release(task.start);
    most = std::max(most, now + taken + memory.workspace[s]);
    now += stays;
    release(task.end);
    post(c);
  }
  return most;
}

std::vector<Bytes> PeakMemory::Estimate(const SliceMemory& memory, const SliceCosts& costs) {
  CountFlows(costs);
  Time(costs);
  std::vector<Bytes> peaks;
  for (int32_t r = 0; r < shape_.devices; ++r) peaks.push_back(Walk(r, memory));
  return peaks;
}

std::vector<Bytes> PeakMemory::AtMost(const SliceMemory& memory, const SliceCosts& costs) const {
  std::vector<Bytes> peaks(shape_.devices, 0);
  std::vector<Bytes> running(shape_.devices, 0);
  for (int32_t s = 0; s < shape_.slices(); ++s) {
    const int32_t r = shape_.device_of(s);
    const Bytes kept = memory.saved[s] + memory.outputs[s];
    peaks[r] += memory.resident[s] + kept * (recompute_ ? 0 : most_held_[s].kept);
    running[r] = std::max(running[r], memory.workspace[s] + (recompute_ ? kept : 0));
  }
  for (const SliceCosts::Message& message : costs.messages) {
    Bytes& reader = peaks[shape_.device_of(message.to)];
    Bytes& writer = peaks[shape_.device_of(message.from)];
    reader += most_held_[message.to].received * message.there_bytes;
    if (recompute_) writer += shape_.micro_batches * message.there_bytes;
    if (message.back < 0) continue;
    // Nothing but the times says how many gradients wait.
    reader += shape_.micro_batches * message.back_bytes;
    writer += most_held_[message.from].returned * message.back_bytes;
  }
  for (int32_t r = 0; r < shape_.devices; ++r) peaks[r] += running[r];
  return peaks;
}

}  // namespace stagewright::pfeife
