#include "planner_service/planners/pfeife/peak_memory.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace stagewright::pfeife {
namespace {

// Messages both ways share the ends of their links, mostly two at a time: what is sent is given
// back after this many times as long as it takes alone.
constexpr double kSharing = 2;

std::vector<SlicePass> PassesOf(const LoopedShape& shape) {
  auto passes = TopologicalPasses(shape);
  CHECK(passes.has_value());
  return *std::move(passes);
}

}  // namespace

// What one device holds while its passes run.
class PeakMemory::Device {
 public:
  Device(Bytes resident, const std::vector<Release>& releases)
      : now_(resident), most_(resident), next_(releases.begin()), end_(releases.end()) {}

  Bytes most() const { return most_; }
  void Release(double until) {
    for (; next_ != end_ && next_->first <= until; ++next_) now_ -= next_->second;
  }
  // Beside what it holds, for a while.
  void Use(Bytes bytes) { most_ = std::max(most_, now_ + bytes); }
  // From now on.
  void Change(Bytes bytes) { now_ += bytes; }

 private:
  Bytes now_;
  Bytes most_;
  std::vector<PeakMemory::Release>::const_iterator next_, end_;
};

PeakMemory::PeakMemory(const LoopedShape& shape, bool recompute, ReceivePosting posting)
    : shape_(shape),
      recompute_(recompute),
      timeline_(LanesOf(shape, PassesOf(shape), recompute, posting)),
      most_held_(shape.slices()) {
  CountHeld();
}

// Whenever passes run, what they hold depends on their order alone.
void PeakMemory::CountHeld() {
  std::vector<Held> now(shape_.slices());
  const auto count = [&](int32_t slice, int32_t Held::*what, int32_t change) {
    now[slice].*what += change;
    most_held_[slice].*what = std::max(most_held_[slice].*what, now[slice].*what);
  };
  const auto& passes = timeline_.lanes().passes();
  for (int32_t done = -1; done < std::ssize(passes); ++done) {
    const PassKind kind = done < 0 ? PassKind::kRecompute : passes[done].kind;
    if (kind == PassKind::kForward) count(passes[done].unit, &Held::kept, 1);
    if (kind == PassKind::kBackward) {
      for (int32_t Held::*what : {&Held::kept, &Held::received, &Held::returned}) {
        count(passes[done].unit, what, -1);
      }
    }
    for (int32_t p : timeline_.lanes().PostedBy(done)) {
      count(passes[p].unit,
            passes[p].kind == PassKind::kForward ? &Held::received : &Held::returned, 1);
    }
  }
}

std::vector<PeakMemory::Flow> PeakMemory::FlowsOf(const SliceCosts& costs) const {
  std::vector<Flow> flows(shape_.slices());
  for (const SliceCosts::Message& message : costs.messages) {
    Flow& from = flows[message.from];
    Flow& to = flows[message.to];
    if (!Local(message)) to.received += message.there_bytes;
    if (!Local(message) || recompute_) to.read += message.there_bytes;
    if (recompute_) from.sent += message.there_bytes;
    if (message.back < 0) continue;
    to.made += message.back_bytes;
    from.all_returned += message.back_bytes;
    if (!Local(message)) from.returned += message.back_bytes;
  }
  return flows;
}

// By device, in order of time: of the messages that it sent.
std::vector<std::vector<PeakMemory::Release>> PeakMemory::ReleasesOf(
    const SliceCosts& costs) const {
  std::vector<std::vector<Release>> releases(shape_.devices);
  for (const Timeline::Sent& sent : timeline_.sent()) {
    const SliceCosts::Message& message = costs.messages[sent.message];
    if (!sent.back && !recompute_) continue;
    releases[shape_.device_of(sent.back ? message.to : message.from)].emplace_back(
        sent.begin + kSharing * sent.time, sent.back ? message.back_bytes : message.there_bytes);
  }
  for (std::vector<Release>& device : releases) std::sort(device.begin(), device.end());
  return releases;
}

std::vector<Bytes> PeakMemory::Estimate(const SliceMemory& memory, const SliceCosts& costs) {
  ToTimelineCosts(costs, recompute_, costs_);
  timeline_.Run(costs_, {.links = LinkModel::kInTurn, .ordered = true});
  const std::vector<Flow> flows = FlowsOf(costs);
  const std::vector<std::vector<Release>> releases = ReleasesOf(costs);
  std::vector<Device> devices;
  for (int32_t r = 0; r < shape_.devices; ++r) {
    Bytes resident = 0;
    for (int32_t s = r; s < shape_.slices(); s += shape_.devices) resident += memory.resident[s];
    devices.emplace_back(resident, releases[r]);
  }
  const auto& passes = timeline_.lanes().passes();
  const auto post = [&](int32_t done) {
    for (int32_t p : timeline_.lanes().PostedBy(done)) {
      const Flow& flow = flows[passes[p].unit];
      devices[passes[p].device].Change(passes[p].kind == PassKind::kForward ? flow.received
                                                                            : flow.returned);
    }
  };
  post(-1);
  for (Device& device : devices) device.Use(0);
  for (int32_t p = 0; p < std::ssize(passes); ++p) {
    const int32_t s = passes[p].unit;
    const Flow& flow = flows[s];
    Device& device = devices[passes[p].device];
    const Bytes kept = memory.saved[s] + memory.outputs[s];
    Bytes taken = kept;  // When the pass starts, besides its workspace.
    Bytes stays = kept;  // The part of everything there is that stays when the pass ends.
    if (passes[p].kind == PassKind::kForward && recompute_) {
      taken = memory.saved[s] + flow.sent;
      stays = flow.sent;
    } else if (passes[p].kind == PassKind::kBackward) {
      taken = flow.made;
      stays = flow.made - kept - flow.read - flow.all_returned;
    }
    device.Release(timeline_.start(p));
    device.Use(taken + memory.workspace[s]);
    device.Change(stays);
    device.Release(timeline_.end(p));
    post(p);
    device.Use(0);
  }
  std::vector<Bytes> peaks;
  for (const Device& device : devices) peaks.push_back(device.most());
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
