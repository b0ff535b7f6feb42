// Explicit compute orders: putting them into a strategy, and their text form.
#include "common/strategy/orders.h"

#include <algorithm>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/strategy/strategy.h"

namespace stagewright {
namespace {

constexpr char kLetters[] = "FRBIW";  // By Pass.
static_assert(sizeof(kLetters) - 2 == static_cast<size_t>(kLastPass));

bool ParseStep(absl::string_view word, ComputeStep& step) {
  const size_t letter = absl::string_view(kLetters).find(word.empty() ? ' ' : word.front());
  if (letter == absl::string_view::npos) return false;
  word.remove_prefix(1);
  const std::vector<absl::string_view> numbers = absl::StrSplit(word, '.');
  int32_t stage = 0;
  if (numbers.size() != 2 || !absl::SimpleAtoi(numbers[0], &stage) ||
      !absl::SimpleAtoi(numbers[1], &step.index) || stage < 0 || step.index < 0) {
    return false;
  }
  step.stage = StageId(stage);
  step.pass = static_cast<Pass>(letter);
  return true;
}

}  // namespace

void SetOrders(const Graph& graph, std::vector<DeviceOrder> orders, Strategy& strategy) {
  std::vector<int64_t> most(strategy.stages.size(), 1);
  for (const DeviceOrder& order : orders) {
    std::map<StageId, int64_t> micro_batches_in_flight;
    for (const ComputeStep& step : order.steps) {
      if (!step.stage.valid() || step.stage.index() >= most.size()) continue;
      int64_t& now = micro_batches_in_flight[step.stage];
      if (step.pass == Pass::kForward) ++now;
      if (step.pass == Pass::kBackward || step.pass == Pass::kBackwardInput) --now;
      most[step.stage.index()] = std::max(most[step.stage.index()], now);
    }
  }
  for (size_t s = 0; s < most.size(); ++s) {
    Stage& stage = strategy.stages[s];
    const bool counts = HasBackward(graph, stage);
    stage.schedule = {(counts ? most[s] : 1) * stage.micro_batch, 1};
  }
  strategy.orders = std::move(orders);
}

std::string OrdersToText(const std::vector<DeviceOrder>& orders) {
  std::string text;
  for (const DeviceOrder& order : orders) {
    absl::StrAppend(&text, "device ", order.device.value(), ":");
    for (const ComputeStep& step : order.steps) {
      const char letter = step.pass <= kLastPass ? kLetters[static_cast<size_t>(step.pass)] : '?';
      absl::StrAppend(&text, " ", absl::string_view(&letter, 1), step.stage.value(), ".",
                      step.index);
    }
    text += '\n';
  }
  return text;
}

absl::StatusOr<std::vector<DeviceOrder>> ParseOrders(const std::string& text) {
  std::vector<DeviceOrder> orders;
  int64_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    const auto bad = [&](absl::string_view what) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", what));
    };
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    absl::string_view name = halves.first;
    int32_t device = 0;
    if (halves.first.size() == line.size() || !absl::ConsumePrefix(&name, "device ") ||
        !absl::SimpleAtoi(name, &device) || device < 0) {
      return bad("an order starts with \"device N:\"");
    }
    DeviceOrder& order = orders.emplace_back();
    order.device = DeviceId(device);
    for (absl::string_view word : absl::StrSplit(halves.second, ' ', absl::SkipEmpty())) {
      if (!ParseStep(word, order.steps.emplace_back()))
        return bad(absl::StrCat("\"", word, "\" is not a step such as F0.3 or W2.0"));
    }
  }
  return orders;
}

}  // namespace stagewright
