#include "common/program/action.h"

#include <array>
#include <charconv>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"

namespace stagewright {
namespace {

struct KindNames {
  std::string_view letters;  // No one is a prefix of another followed by a digit.
  std::string_view name;
  std::string_view words;  // $0: samples, $1: stage.
};

// By ActionKind.
constexpr std::array<KindNames, 13> kNames = {
    {{"F", "forward", "the forward pass of stage $1 on $0"},
     {"B", "backward", "the backward pass of stage $1 on $0"},
     {"I", "backward_input", "the backward pass to the inputs of stage $1 on $0"},
     {"W", "backward_weight", "the backward pass to the weights of stage $1 on $0"},
     {"R", "recompute", "the repeated forward pass of stage $1 on $0"},
     {"SA", "send_activation", "sending activations of $0 from stage $1"},
     {"RA", "receive_activation", "receiving activations of $0 for stage $1"},
     {"SG", "send_gradient", "sending gradients of $0 from stage $1"},
     {"RG", "receive_gradient", "receiving gradients of $0 for stage $1"},
     {"AR", "all_reduce", "summing gradients of stage $1 over devices"},
     {"OS", "optimizer_step", "the optimizer step of stage $1"},
     {"RS", "reduce_scatter", "summing shares of the gradients of stage $1 over devices"},
     {"AG", "all_gather", "exchanging updated parameters of stage $1"}}};
static_assert(kNames.size() == static_cast<size_t>(kLastActionKind) + 1);

bool HasSamples(ActionKind kind) {
  return !IsCollective(kind) && kind != ActionKind::kOptimizerStep;
}

bool MayHaveSamples(ActionKind kind) {
  return HasSamples(kind) || kind == ActionKind::kReduceScatter;
}

bool HasChannel(ActionKind kind) { return IsTransfer(kind) || IsCollective(kind); }

bool MayHaveChannel(ActionKind kind) {
  return HasChannel(kind) || kind == ActionKind::kOptimizerStep;
}

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
  const bool names_samples = HasSamples(action.kind) ||
                             (MayHaveSamples(action.kind) && !text.empty() && text.front() == '[');
  if (names_samples && !TakeSamples(text, action.samples)) return false;
  const bool names_channel = MayHaveChannel(action.kind) && Take(text, '@');
  if (names_channel ? !TakeNumber(text, action.channel) : HasChannel(action.kind)) return false;
  return text.empty();
}

}  // namespace

std::string_view ActionKindName(ActionKind kind) { return kNames[static_cast<size_t>(kind)].name; }

std::string InWords(const Action& action) {
  const SampleRange& samples = action.samples;
  const std::string_view words = kNames[static_cast<size_t>(action.kind)].words;
  const std::string which = samples.size() == 1
                                ? absl::StrCat("sample ", samples.begin)
                                : absl::StrCat("samples ", samples.begin, " to ", samples.end - 1);
  const std::string said =
      absl::Substitute(absl::string_view(words.data(), words.size()), which, action.stage.value());
  const bool of_some = !HasSamples(action.kind) && !samples.empty();
  return of_some ? absl::StrCat(said, ", of ", which) : said;
}

std::string ToString(const Action& action) {
  const std::string_view name = kNames[static_cast<size_t>(action.kind)].letters;
  std::string text =
      absl::StrCat(absl::string_view(name.data(), name.size()), action.stage.value());
  if (HasSamples(action.kind) || !action.samples.empty())
    absl::StrAppend(&text, "[", action.samples.begin, ",", action.samples.end, ")");
  if (HasChannel(action.kind) || action.channel >= 0) absl::StrAppend(&text, "@", action.channel);
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
