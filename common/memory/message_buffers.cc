#include "common/memory/message_buffers.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/cost/retention.h"

namespace stagewright {
namespace {

// The actions of a few steps in list order, which is that of their starts: a receive stands behind
// the compute action whose end lets it be posted. Samples are counted through the steps.
std::vector<Action> Written(const Program& program, const DeviceProgram& device) {
  std::vector<Action> actions;
  const auto append = [&](const std::vector<ProgramAction>& section, int64_t step) {
    for (const ProgramAction& entry : section) {
      Action action = entry.action;
      action.samples.begin += step * program.mini_batch;
      action.samples.end += step * program.mini_batch;
      actions.push_back(action);
    }
  };
  append(device.prologue, 0);
  append(device.body, 0);
  if (!program.asynchronous) return actions;
  append(device.body, 1);
  append(device.epilogue, 2);
  return actions;
}

// The passes over each stage's shares, which their first samples name.
class Passes {
 public:
  explicit Passes(const std::vector<Action>& actions) {
    for (size_t i = 0; i < actions.size(); ++i) {
      const Action& action = actions[i];
      if (!IsCompute(action.kind) || action.kind == ActionKind::kOptimizerStep) continue;
      passes_.push_back({{action.stage, action.samples.begin, i}, action.samples});
    }
    std::sort(passes_.begin(), passes_.end(),
              [](const Pass& a, const Pass& b) { return a.key < b.key; });
  }

  // After which a message, received by the action `receive`, is used up: the last pass over its
  // share, or the next one if that joins the message with others. A message is for one share.
  size_t LastUse(const Action& message, size_t receive) const {
    const auto after = After({message.stage, message.samples.begin, kLast});
    if (after == passes_.begin()) return receive;
    const auto& [stage, begin, last] = std::prev(after)->key;
    if (stage != message.stage || last < receive) return receive;
    if (After({stage, begin - 1, kLast})->samples == message.samples) return last;
    return std::get<2>(After({stage, begin, receive})->key);
  }

 private:
  // Stage, first sample and place among the actions.
  using Key = std::tuple<StageId, int64_t, size_t>;
  struct Pass {
    Key key;
    SampleRange samples;
  };
  static constexpr size_t kLast = std::numeric_limits<size_t>::max();

  std::vector<Pass>::const_iterator After(const Key& key) const {
    return std::upper_bound(passes_.begin(), passes_.end(), key,
                            [](const Key& a, const Pass& b) { return a < b.key; });
  }

  std::vector<Pass> passes_;  // By key.
};

// What the last message of a lane asked for; the next one mostly is as long.
struct LastMessage {
  int64_t samples = -1;
  Bytes bytes = 0;
};

}  // namespace

Bytes MessageBytes(const MessageTypes& types, const std::vector<ValueRef>& values,
                   int64_t samples) {
  Bytes bytes = 0;
  if (samples <= 0) return bytes;  // An empty share: an empty message.
  for (ValueRef value : values) {
    bytes = (bytes + kMessageAlignment - 1) / kMessageAlignment * kMessageAlignment;
    bytes += types.SizeBytes(value, samples);
  }
  return bytes;
}

bool IsPacked(const MessageTypes& types, const std::vector<ValueRef>& values) {
  return values.size() != 1 || StorageOf(types.graph(), values[0]) != values[0] ||
         types.MayBeCopied(values[0]);
}

std::map<Bytes, int32_t> MessageBuffers(const MessageTypes& types, const Program& program,
                                        const DeviceProgram& device) {
  const std::vector<Action> actions = Written(program, device);
  const Passes passes(actions);
  std::map<Bytes, int32_t> held, most;
  // What is let go of after an action: the first one on top.
  std::priority_queue<std::pair<size_t, Bytes>, std::vector<std::pair<size_t, Bytes>>,
                      std::greater<>>
      ends;
  absl::flat_hash_map<int64_t, LastMessage> lanes;
  std::vector<std::pair<LaneKey, Bytes>> sends;
  for (size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    if (IsTransfer(action.kind)) {
      const bool forward = action.kind == ActionKind::kSendActivation ||
                           action.kind == ActionKind::kReceiveActivation;
      const Channel& channel = program.channels[action.channel];
      const std::vector<ValueRef>& values = forward ? channel.values : channel.gradient_values;
      const LaneKey lane = LaneOf(action);
      LastMessage& message = lanes[int64_t{lane.channel} * 16 + lane.kind];
      if (message.samples != action.samples.size()) {
        message = {action.samples.size(), MessageBytes(types, values, action.samples.size())};
        if (message.bytes > 0 && IsSend(action.kind) && IsPacked(types, values))
          sends.push_back({lane, message.bytes});
      }
      if (message.bytes > 0 && !IsSend(action.kind)) {
        ends.push({passes.LastUse(action, i), message.bytes});
        int32_t& most_held = most[message.bytes];
        most_held = std::max(most_held, ++held[message.bytes]);
      }
    }
    for (; !ends.empty() && ends.top().first == i; ends.pop()) --held[ends.top().second];
  }
  std::sort(sends.begin(), sends.end());
  sends.erase(std::unique(sends.begin(), sends.end()), sends.end());
  for (const auto& [lane, bytes] : sends) ++most[bytes];
  return most;
}

Bytes BufferBytes(const MessageTypes& types, const Program& program, const DeviceProgram& device) {
  Bytes bytes = 0;
  if (!types.graph().executable()) return bytes;
  for (const auto& [size, count] : MessageBuffers(types, program, device)) bytes += size * count;
  return bytes;
}

}  // namespace stagewright
