// One unit of a device's work. An action carries no time, no tensor and no rank arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/ids.h"
#include "common/base/sample_range.h"
#include "common/base/status.h"

namespace stagewright {

enum class ActionKind : uint8_t {
  kForward,            // F
  kBackward,           // B
  kBackwardInput,      // I: gradient of the stage's inputs
  kBackwardWeight,     // W: gradient of its parameters
  kRecompute,          // R
  kSendActivation,     // SA
  kReceiveActivation,  // RA
  kSendGradient,       // SG
  kReceiveGradient,    // RG
  kAllReduce,          // AR: sum gradients over a reduction group
  kOptimizerStep,      // OS
  kReduceScatter,      // RS: sum gradients, each device those of its share
  kAllGather,          // AG: exchange the shares of the parameters that were updated
};
inline constexpr ActionKind kLastActionKind = ActionKind::kAllGather;

struct Action {
  ActionKind kind = ActionKind::kForward;
  StageId stage;
  // This device's share; the whole micro-batch where a reduction sums the gradients of each
  // (Reduction::each_pass). Empty for other collectives and kOptimizerStep.
  SampleRange samples;
  // Transfers: index in Program::channels. Collectives: index in Program::reductions.
  // kOptimizerStep: that of the last of its stage's reductions that it follows, if it leaves others
  // to a later step. Else -1.
  int32_t channel = -1;
  friend auto operator<=>(const Action&, const Action&) = default;
};

// Inline: they are asked several times for every action that is lowered, walked through or
// simulated.
constexpr bool IsSend(ActionKind kind) {  // SA, SG
  return kind == ActionKind::kSendActivation || kind == ActionKind::kSendGradient;
}
constexpr bool IsReceive(ActionKind kind) {  // RA, RG
  return kind == ActionKind::kReceiveActivation || kind == ActionKind::kReceiveGradient;
}
constexpr bool IsTransfer(ActionKind kind) { return IsSend(kind) || IsReceive(kind); }
// AR, RS: gradients that a reduction sums.
constexpr bool IsSum(ActionKind kind) {
  return kind == ActionKind::kAllReduce || kind == ActionKind::kReduceScatter;
}
// IsSum or AG: all devices of a reduction take part.
constexpr bool IsCollective(ActionKind kind) {
  return IsSum(kind) || kind == ActionKind::kAllGather;
}
// F, B, I, W, R, OS: occupies the device's compute lane.
constexpr bool IsCompute(ActionKind kind) { return !IsTransfer(kind) && !IsCollective(kind); }

// "forward", "backward_input", "send_activation", "all_reduce", ...: for metrics and traces.
std::string_view ActionKindName(ActionKind kind);

// For people: "the forward pass of stage 2 on samples 0 to 7", "receiving activations of samples 0
// to 3 for stage 2". Samples are counted in the mini-batch.
std::string InWords(const Action& action);

// "F2[0,8)", "SA2[0,4)@3" (channel 3), "AR1@0" (reduction 0), "RS1[0,8)@0" (of one micro-batch),
// "OS1" or, if it follows the reductions up to 4 only, "OS1@4". ParseAction is the inverse.
std::string ToString(const Action& action);
absl::StatusOr<Action> ParseAction(const std::string& text);

}  // namespace stagewright
