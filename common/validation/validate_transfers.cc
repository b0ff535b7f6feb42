#include "common/validation/validate_transfers.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

// Which stage and device an end of a channel must be on.
absl::Status CheckEnd(const Validation& v, Cell cell) {
  const Action& action = v.At(cell).action;
  const Channel& channel = v.program().channels[action.channel];
  const bool upper =
      action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kReceiveGradient;
  const StageId stage = upper ? channel.from : channel.to;
  const DeviceId device = upper ? channel.source : channel.target;
  if (channel.local()) return v.Broken(cell, "the channel's ends share a device");
  if (action.stage != stage || v.DeviceOf(cell) != device) {
    return v.Broken(cell, "this end of the channel is stage ", stage.value(), " on device ",
                    device.value());
  }
  const bool gradient =
      action.kind == ActionKind::kSendGradient || action.kind == ActionKind::kReceiveGradient;
  if (gradient && !channel.has_gradient) return v.Broken(cell, "the channel has no gradients");
  return absl::OkStatus();
}

absl::Status CheckMatch(const Validation& v, const std::vector<Cell>& sends,
                        const std::vector<Cell>& receives) {
  for (size_t i = 0; i < std::max(sends.size(), receives.size()); ++i) {
    if (i >= receives.size()) return v.Broken(sends[i], "the send has no receive");
    if (i >= sends.size()) return v.Broken(receives[i], "the receive has no send");
    if (v.At(sends[i]).action.samples != v.At(receives[i]).action.samples) {
      return v.Broken(receives[i], "it is number ", i, " of its channel and meets ",
                      ToString(v.At(sends[i]).action), " of device ", v.DeviceOf(sends[i]).value());
    }
  }
  return absl::OkStatus();
}

// Which stages feed each stage, over channels.
struct Neighbours {
  std::vector<std::vector<StageId>> above, below;  // `below`: those that return gradients.
};
Neighbours MakeNeighbours(const Validation& v) {
  Neighbours result{std::vector<std::vector<StageId>>(v.program().stages.size()),
                    std::vector<std::vector<StageId>>(v.program().stages.size())};
  const auto add = [](std::vector<StageId>& to, StageId stage) {
    if (std::find(to.begin(), to.end(), stage) == to.end()) to.push_back(stage);
  };
  for (const Channel& channel : v.program().channels) {
    add(result.above[channel.to.index()], channel.from);
    if (v.program().training && channel.has_gradient)
      add(result.below[channel.from.index()], channel.to);
  }
  return result;
}

bool Produces(ActionKind kind, bool forward) {
  return forward ? kind == ActionKind::kForward
                 : kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput;
}

// Samples of `cell` that come from stage `from`: in messages, or from a task of this device.
absl::Status CheckInputs(const Validation& v, Cell cell, const std::vector<StageId>& sources,
                         bool forward) {
  const SampleRange needed = v.At(cell).action.samples;
  const ActionKind receive =
      forward ? ActionKind::kReceiveActivation : ActionKind::kReceiveGradient;
  for (StageId source : sources) {
    int64_t found = 0;
    for (int32_t before : v.At(cell).after) {
      const Action& input = v.Body(cell.row)[before].action;
      const bool message = input.kind == receive && input.stage == v.At(cell).action.stage &&
                           source == (forward ? v.program().channels[input.channel].from
                                              : v.program().channels[input.channel].to);
      const bool local = Produces(input.kind, forward) && input.stage == source;
      if (message || local) found += Intersect(input.samples, needed).size();
    }
    if (found != needed.size()) {
      return v.Broken(cell, "it waits for ", found, " of ", needed.size(), " samples' ",
                      forward ? "activations" : "gradients", " from stage ", source.value());
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSend(const Validation& v, Cell cell) {
  const Action& action = v.At(cell).action;
  const bool forward = action.kind == ActionKind::kSendActivation;
  for (int32_t before : v.At(cell).after) {
    const Action& source = v.Body(cell.row)[before].action;
    if (Produces(source.kind, forward) && source.stage == action.stage &&
        source.samples.Contains(action.samples)) {
      return absl::OkStatus();
    }
  }
  return v.Broken(cell, "it does not wait for the pass that makes what it sends");
}

// Sends and receives match in order per channel and direction.
absl::Status CheckMatches(const Validation& v) {
  std::map<LaneKey, std::vector<Cell>> lanes;
  for (size_t d = 0; d < v.program().devices.size(); ++d) {
    for (size_t i = 0; i < v.program().devices[d].body.size(); ++i) {
      const Cell cell{static_cast<int32_t>(d), static_cast<int32_t>(i)};
      if (!IsTransfer(v.At(cell).action.kind)) continue;
      RETURN_IF_ERROR(CheckEnd(v, cell));
      lanes[LaneOf(v.At(cell).action)].push_back(cell);
    }
  }
  for (size_t c = 0; c < v.program().channels.size(); ++c) {
    const auto channel = static_cast<int32_t>(c);
    const auto lane = [&](ActionKind kind) -> const std::vector<Cell>& {
      return lanes[{channel, static_cast<int32_t>(kind)}];
    };
    RETURN_IF_ERROR(
        CheckMatch(v, lane(ActionKind::kSendActivation), lane(ActionKind::kReceiveActivation)));
    RETURN_IF_ERROR(
        CheckMatch(v, lane(ActionKind::kSendGradient), lane(ActionKind::kReceiveGradient)));
  }
  return absl::OkStatus();
}

// Forwards wait for all activations they read, backwards for all gradients, sends for what they
// send.
absl::Status CheckWaits(const Validation& v) {
  const Neighbours neighbours = MakeNeighbours(v);
  for (size_t d = 0; d < v.program().devices.size(); ++d) {
    for (size_t i = 0; i < v.program().devices[d].body.size(); ++i) {
      const Cell cell{static_cast<int32_t>(d), static_cast<int32_t>(i)};
      const Action& action = v.At(cell).action;
      if (action.kind == ActionKind::kForward) {
        RETURN_IF_ERROR(CheckInputs(v, cell, neighbours.above[action.stage.index()], true));
      } else if (action.kind == ActionKind::kBackward ||
                 action.kind == ActionKind::kBackwardInput) {
        RETURN_IF_ERROR(CheckInputs(v, cell, neighbours.below[action.stage.index()], false));
      } else if (IsSend(action.kind)) {
        RETURN_IF_ERROR(CheckSend(v, cell));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTransfers(const Validation& v) {
  RETURN_IF_ERROR(CheckMatches(v));
  return CheckWaits(v);
}

}  // namespace stagewright
