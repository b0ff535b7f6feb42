#include "planner_service/simulator/measured_durations.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/program/unroll.h"
#include "planner_service/simulator/durations.h"

namespace stagewright {
namespace {

// An action on a device; for transfers and collectives it is found from either end.
struct Key {
  DeviceId device;
  Action action;

  friend bool operator==(const Key&, const Key&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Key& key) {
    const Action& a = key.action;
    return H::combine(std::move(h), key.device, static_cast<int>(a.kind), a.stage, a.samples.begin,
                      a.samples.end, a.channel);
  }
};

struct Span {
  Nanos start = 0;
  Nanos end = 0;
};

using Spans = absl::flat_hash_map<Key, Span>;

// From the start of a pass to its marks, by node.
using Marks = absl::flat_hash_map<Key, std::map<int32_t, Nanos>>;

class MeasuredDurations : public Durations {
 public:
  MeasuredDurations(absl::flat_hash_map<Key, Nanos> times, Marks marks, const Program& program)
      : times_(std::move(times)), marks_(std::move(marks)) {
    for (const Channel& channel : program.channels) {
      senders_.push_back({channel.source, channel.target});
    }
  }

  Nanos Of(DeviceId device, const Action& action) const override {
    auto it = times_.find({device, action});
    CHECK(it != times_.end());
    return it->second;
  }
  Nanos UntilMark(DeviceId device, const Action& pass, int32_t node) const override {
    return marks_.at({device, pass}).at(node);
  }
  Transfer TransferOf(const Action& send) const override {
    const auto& [source, target] = senders_[send.channel];
    return {Of(send.kind == ActionKind::kSendGradient ? target : source, send), 0, {}};
  }
  std::vector<double> LinkRates() const override { return {}; }

 private:
  absl::flat_hash_map<Key, Nanos> times_;
  Marks marks_;
  std::vector<std::pair<DeviceId, DeviceId>> senders_;  // By channel: of activations, gradients.
};

// The receive that matches a send, on the device at the other end.
Key MatchingReceive(const Program& program, const Action& send, StageId receiving_stage) {
  const Channel& channel = program.channels[send.channel];
  Key key{channel.target, send};
  key.action.kind = ActionKind::kReceiveActivation;
  if (send.kind == ActionKind::kSendGradient) {
    key = {channel.source, send};
    key.action.kind = ActionKind::kReceiveGradient;
  }
  key.action.stage = receiving_stage;
  return key;
}

absl::Status Missing(const Key& key, int32_t step) {
  return absl::FailedPreconditionError(absl::StrCat("the trace of step ", step,
                                                    " has no event for ", ToString(key.action),
                                                    " of device ", key.device.value()));
}

absl::StatusOr<Nanos> TransferTime(const Program& program, const Spans& spans, const Key& send,
                                   int32_t step) {
  const Channel& channel = program.channels[send.action.channel];
  const StageId receiver =
      send.action.kind == ActionKind::kSendGradient ? channel.from : channel.to;
  const Key receive = MatchingReceive(program, send.action, receiver);
  auto from = spans.find(send);
  auto to = spans.find(receive);
  if (to == spans.end()) return Missing(receive, step);
  return std::max<Nanos>(0, to->second.end - std::max(from->second.start, to->second.start));
}

// An all-reduce that started later than its mark was reached waited for its lane, as it does again.
Marks MarksOf(const Program& program, const Spans& spans) {
  Marks marks;
  for (const DeviceProgram& device : program.devices) {
    for (const ProgramAction& item : device.body) {
      for (const PassMark& mark : item.after_marks) {
        const Key pass{device.device, device.body[mark.action].action};
        const auto sum = spans.find({device.device, item.action});
        const auto span = spans.find(pass);
        if (sum == spans.end() || span == spans.end()) continue;  // Found to be missing later.
        const Nanos whole = std::max<Nanos>(0, span->second.end - span->second.start);
        const Nanos until = std::clamp<Nanos>(sum->second.start - span->second.start, 0, whole);
        const auto [known, is_new] = marks[pass].try_emplace(mark.node, until);
        if (!is_new) known->second = std::min(known->second, until);
      }
    }
  }
  return marks;
}

// What all members of a collective have in common.
using Meeting = std::tuple<ActionKind, int32_t, SampleRange>;
Meeting MeetingOf(const Action& action) { return {action.kind, action.channel, action.samples}; }
using Meetings = std::map<Meeting, Nanos>;

// From the last start to the last end over the members of each.
Meetings CollectiveTimes(const Program& program, const Spans& spans) {
  std::map<Meeting, Span> last;
  for (const DeviceProgram& device : program.devices) {
    for (const ProgramAction& item : device.body) {
      if (!IsCollective(item.action.kind)) continue;
      const auto it = spans.find({device.device, item.action});
      if (it == spans.end()) continue;
      const auto [entry, first] = last.try_emplace(MeetingOf(item.action), it->second);
      if (first) continue;
      entry->second.start = std::max(entry->second.start, it->second.start);
      entry->second.end = std::max(entry->second.end, it->second.end);
    }
  }
  Meetings times;
  for (const auto& [meeting, span] : last)
    times[meeting] = std::max<Nanos>(0, span.end - span.start);
  return times;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Durations>> MakeMeasuredDurations(
    const Program& program, const std::vector<TraceEvent>& trace, int32_t step) {
  if (HasSections(program)) {
    return absl::FailedPreconditionError(
        "a step of an asynchronous program cannot be replayed by itself: unroll the program");
  }
  Spans spans;
  for (const TraceEvent& event : trace) {
    if (event.step != step) continue;
    spans[{event.device, event.action}] = {event.start, event.end};
  }
  const Meetings collectives = CollectiveTimes(program, spans);
  absl::flat_hash_map<Key, Nanos> times;
  for (const DeviceProgram& device : program.devices) {
    for (const ProgramAction& item : device.body) {
      const Key key{device.device, item.action};
      const auto it = spans.find(key);
      if (it == spans.end()) return Missing(key, step);
      if (IsReceive(item.action.kind)) continue;  // Measured with its send.
      if (IsSend(item.action.kind)) {
        ASSIGN_OR_RETURN(times[key], TransferTime(program, spans, key, step));
      } else if (IsCollective(item.action.kind)) {
        times[key] = collectives.at(MeetingOf(item.action));
      } else {
        times[key] = std::max<Nanos>(0, it->second.end - it->second.start);
      }
    }
  }
  return std::make_unique<MeasuredDurations>(std::move(times), MarksOf(program, spans), program);
}

}  // namespace stagewright
