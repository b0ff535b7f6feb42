#include "worker_daemon/engine/message_buffers.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "worker_daemon/engine/message.h"

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

// The last compute action of the receive's stage on any of its samples.
size_t LastUse(const std::vector<Action>& actions, size_t receive) {
  size_t last = receive;
  const Action& message = actions[receive];
  for (size_t i = receive + 1; i < actions.size(); ++i) {
    const Action& action = actions[i];
    if (IsCompute(action.kind) && action.kind != ActionKind::kOptimizerStep &&
        action.stage == message.stage && !Intersect(action.samples, message.samples).empty())
      last = i;
  }
  return last;
}

}  // namespace

std::map<Bytes, int32_t> MessageBuffers(const Graph& graph, const Program& program,
                                        const DeviceProgram& device) {
  const std::vector<Action> actions = Written(program, device);
  const auto bytes_of = [&](const Action& action) {
    const Channel& channel = program.channels[action.channel];
    const bool forward =
        action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kReceiveActivation;
    return MessageLayout(graph, forward ? channel.values : channel.gradient_values,
                         action.samples.size())
        .bytes();
  };
  std::map<Bytes, int32_t> held, most;
  std::vector<std::vector<Bytes>> ends(actions.size());  // Sizes let go of after an action.
  std::set<std::pair<LaneKey, Bytes>> sends;
  for (size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    if (IsTransfer(action.kind)) {
      const Bytes bytes = bytes_of(action);
      if (bytes == 0) continue;
      if (IsSend(action.kind)) {
        sends.insert({LaneOf(action), bytes});
        continue;
      }
      ends[LastUse(actions, i)].push_back(bytes);
      most[bytes] = std::max(most[bytes], ++held[bytes]);
    }
    for (Bytes bytes : ends[i]) --held[bytes];
  }
  for (const auto& [lane, bytes] : sends) ++most[bytes];
  return most;
}

}  // namespace stagewright
