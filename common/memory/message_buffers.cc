#include "common/memory/message_buffers.h"

#include <algorithm>
#include <set>
#include <utility>

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

// The first and the last pass of each stage's shares, by their first sample.
class Passes {
 public:
  explicit Passes(const std::vector<Action>& actions) {
    for (size_t i = 0; i < actions.size(); ++i) {
      const Action& action = actions[i];
      if (!IsCompute(action.kind) || action.kind == ActionKind::kOptimizerStep) continue;
      Share& share = shares_[{action.stage, action.samples.begin}];
      if (share.passes.empty()) share.samples = action.samples;
      share.passes.push_back(i);
    }
  }

  // After which a message, received by the action `receive`, is used up: the last pass over its
  // share, or the next one if that joins the message with others. A message is for one share.
  size_t LastUse(const Action& message, size_t receive) const {
    auto after = shares_.upper_bound({message.stage, message.samples.begin});
    if (after == shares_.begin()) return receive;
    --after;
    const Share& share = after->second;
    if (after->first.first != message.stage || share.passes.back() < receive) return receive;
    if (share.samples == message.samples) return share.passes.back();
    return *std::upper_bound(share.passes.begin(), share.passes.end(), receive);
  }

 private:
  struct Share {
    SampleRange samples;
    std::vector<size_t> passes;  // Ascending.
  };
  std::map<std::pair<StageId, int64_t>, Share> shares_;
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
  std::vector<std::vector<Bytes>> ends(actions.size());  // Sizes let go of after an action.
  std::set<std::pair<LaneKey, Bytes>> sends;
  for (size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    if (IsTransfer(action.kind)) {
      const Channel& channel = program.channels[action.channel];
      const bool forward = action.kind == ActionKind::kSendActivation ||
                           action.kind == ActionKind::kReceiveActivation;
      const std::vector<ValueRef>& values = forward ? channel.values : channel.gradient_values;
      const Bytes bytes = MessageBytes(types, values, action.samples.size());
      if (bytes == 0) continue;
      if (IsSend(action.kind)) {
        if (IsPacked(types, values)) sends.insert({LaneOf(action), bytes});
        continue;
      }
      ends[passes.LastUse(action, i)].push_back(bytes);
      most[bytes] = std::max(most[bytes], ++held[bytes]);
    }
    for (Bytes bytes : ends[i]) --held[bytes];
  }
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
