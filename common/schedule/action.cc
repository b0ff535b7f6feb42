#include "common/schedule/action.h"

#include <array>
#include <charconv>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

struct KindNames {
  std::string_view letters;  // No one is a prefix of another followed by a digit.
  std::string_view name;
};

// By ActionKind.
constexpr std::array<KindNames, 11> kNames = {{{"F", "forward"},
                                               {"B", "backward"},
                                               {"I", "backward_input"},
                                               {"W", "backward_weight"},
                                               {"R", "recompute"},
                                               {"SA", "send_activation"},
                                               {"RA", "receive_activation"},
                                               {"SG", "send_gradient"},
                                               {"RG", "receive_gradient"},
                                               {"AR", "all_reduce"},
                                               {"OS", "optimizer_step"}}};
static_assert(kNames.size() == static_cast<size_t>(ActionKind::kOptimizerStep) + 1);

bool HasSamples(ActionKind kind) {
  return kind != ActionKind::kAllReduce && kind != ActionKind::kOptimizerStep;
}

bool HasChannel(ActionKind kind) { return IsTransfer(kind) || kind == ActionKind::kAllReduce; }

// Takes a non-negative number off the front of `text`.
template <typename Int>
bool TakeNumber(std::string_view& text, Int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool Take(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

bool TakeKind(std::string_view& text, ActionKind& kind) {
  size_t letters = 0;
  while (letters < text.size() && text[letters] >= 'A' && text[letters] <= 'Z') ++letters;
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (text.substr(0, letters) != kNames[i].letters) continue;
    kind = static_cast<ActionKind>(i);
    text.remove_prefix(letters);
    return true;
  }
  return false;
}

bool TakeSamples(std::string_view& text, SampleRange& samples) {
  return Take(text, '[') && TakeNumber(text, samples.begin) && Take(text, ',') &&
         TakeNumber(text, samples.end) && Take(text, ')') && !samples.empty();
}

bool Parse(std::string_view text, Action& action) {
  int32_t stage = 0;
  if (!TakeKind(text, action.kind) || !TakeNumber(text, stage)) return false;
  action.stage = StageId(stage);
  if (HasSamples(action.kind) && !TakeSamples(text, action.samples)) return false;
  if (HasChannel(action.kind) && !(Take(text, '@') && TakeNumber(text, action.channel)))
    return false;
  return text.empty();
}

}  // namespace

bool IsCompute(ActionKind kind) { return !IsTransfer(kind) && kind != ActionKind::kAllReduce; }

bool IsSend(ActionKind kind) {
  return kind == ActionKind::kSendActivation || kind == ActionKind::kSendGradient;
}

bool IsReceive(ActionKind kind) {
  return kind == ActionKind::kReceiveActivation || kind == ActionKind::kReceiveGradient;
}

bool IsTransfer(ActionKind kind) { return IsSend(kind) || IsReceive(kind); }

std::string_view ActionKindName(ActionKind kind) { return kNames[static_cast<size_t>(kind)].name; }

std::string ToString(const Action& action) {
  const std::string_view name = kNames[static_cast<size_t>(action.kind)].letters;
  std::string text =
      absl::StrCat(absl::string_view(name.data(), name.size()), action.stage.value());
  if (HasSamples(action.kind))
    absl::StrAppend(&text, "[", action.samples.begin, ",", action.samples.end, ")");
  if (HasChannel(action.kind)) absl::StrAppend(&text, "@", action.channel);
  return text;
}

absl::StatusOr<Action> ParseAction(const std::string& text) {
  Action action;
  if (!Parse(text, action)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not an action such as F2[0,8), SA2[0,4)@3, AR1@0 or OS1"));
  }
  return action;
}

}  // namespace stagewright
