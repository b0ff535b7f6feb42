#include "planner_service/drift/drift_causes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace stagewright {
namespace {

constexpr size_t kMostCauses = 4;
constexpr size_t kMostOperators = 3;
// A group or operator is named if it makes up so much of the difference.
constexpr int kLeastPart = 5;  // A fifth.

double RatioOf(Nanos measured, Nanos predicted) {
  if (predicted <= 0) return measured > 0 ? 1 : 0;
  return static_cast<double>(measured) / static_cast<double>(predicted) - 1;
}

std::string PassName(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "forward pass";
    case ActionKind::kBackward:
      return "backward pass";
    case ActionKind::kBackwardInput:
      return "input half of the backward pass";
    case ActionKind::kBackwardWeight:
      return "weight half of the backward pass";
    case ActionKind::kRecompute:
      return "recomputation";
    default:
      return "update";
  }
}

std::string WorkerOf(const std::string& device) { return device.substr(0, device.find('/')); }

// "worker-a -> worker-b", or with devices where both are one worker's.
std::string LinkName(const std::string& from, const std::string& to) {
  const bool inside = WorkerOf(from) == WorkerOf(to);
  return absl::StrCat(inside ? from : WorkerOf(from), " -> ", inside ? to : WorkerOf(to));
}

std::string PlaceOf(const Program& program, const ActionTimes& times, const NamesOfJob& names) {
  const ActionGroup& group = times.group;
  if (group.kind == ActionKind::kAllReduce) {
    std::vector<std::string> members;
    for (DeviceId device : program.reductions[group.channel].devices)
      members.push_back(names.device(device));
    return absl::StrCat("gradient sum of stage ", group.stage.value(), " over ",
                        absl::StrJoin(members, ", "), ": ");
  }
  if (IsSend(group.kind)) {
    const Channel& channel = program.channels[group.channel];
    const DeviceId to = group.kind == ActionKind::kSendActivation ? channel.target : channel.source;
    return absl::StrCat("link ", LinkName(names.device(group.device), names.device(to)), ": ");
  }
  return absl::StrCat("stage ", group.stage.value(), " on ", names.device(group.device), ": ",
                      PassName(group.kind), " ");
}

// Operators of the pass, those that exceed their prediction most first.
std::vector<std::string> OperatorsOf(const ActionTimes& times,
                                     const std::vector<TimedOperator>& expected,
                                     const std::vector<TimedOperator>& timed,
                                     const NamesOfJob& names) {
  const ActionGroup& group = times.group;
  const bool forward = group.kind == ActionKind::kForward;
  if (!forward && group.kind != ActionKind::kBackward) return {};
  const Nanos whole = times.measured - times.predicted;
  std::vector<std::pair<Nanos, NodeId>> excess;
  for (const TimedOperator& one : timed) {
    if (one.device != group.device || one.stage != group.stage || one.samples != group.samples)
      continue;
    const auto known =
        std::find_if(expected.begin(), expected.end(), [&](const TimedOperator& other) {
          return other.stage == one.stage && other.node == one.node && other.samples == one.samples;
        });
    if (known == expected.end()) continue;
    const Nanos more = forward ? one.forward - known->forward : one.backward - known->backward;
    if ((more > 0) == (whole > 0) && std::max(more, -more) * kLeastPart >= std::max(whole, -whole))
      excess.emplace_back(-std::max(more, -more), one.node);
  }
  std::sort(excess.begin(), excess.end());
  if (excess.size() > kMostOperators) excess.resize(kMostOperators);
  std::vector<std::string> operators;
  for (const auto& [more, node] : excess) operators.push_back(names.node(node));
  return operators;
}

}  // namespace

std::string PercentText(double ratio) { return absl::StrFormat("%+.0f %%", ratio * 100); }

std::vector<std::string> CausesOf(const Program& program, Nanos predicted_step, Nanos measured_step,
                                  const std::vector<ActionTimes>& actions,
                                  const std::vector<TimedOperator>& expected,
                                  const std::vector<TimedOperator>& timed,
                                  const NamesOfJob& names) {
  const Nanos drift = measured_step - predicted_step;
  std::vector<std::string> causes;
  for (const ActionTimes& times : actions) {
    const double ratio = RatioOf(times.measured, times.predicted);
    const Nanos excess = times.Excess();
    if (causes.size() == kMostCauses || std::abs(ratio) <= kDrift) continue;
    if ((excess > 0) != (drift > 0)) continue;
    if (std::max(excess, -excess) * kLeastPart < std::max(drift, -drift)) continue;
    std::string cause = absl::StrCat(
        PlaceOf(program, times, names), FormatDuration(times.measured),
        times.bytes > 0 ? absl::StrCat(" for ", FormatBytes(times.bytes)) : "", ", predicted ",
        FormatDuration(times.predicted), " (", PercentText(ratio), ")");
    const std::vector<std::string> operators = OperatorsOf(times, expected, timed, names);
    if (!operators.empty()) absl::StrAppend(&cause, ": ", absl::StrJoin(operators, ", "));
    causes.push_back(std::move(cause));
  }
  if (!causes.empty()) return causes;
  return {"no pass, update or message by itself: time goes between them"};
}

}  // namespace stagewright
