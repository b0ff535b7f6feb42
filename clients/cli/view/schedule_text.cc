#include "clients/cli/view/schedule_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stagewright::cli {
namespace {

bool IsSplit(const v1::Strategy& strategy, int32_t stage) {
  for (const v1::DeviceOrder& order : strategy.orders()) {
    for (const v1::ComputeStep& step : order.steps()) {
      if (step.stage() == stage && step.pass() == v1::PASS_BACKWARD_INPUT) return true;
    }
  }
  return false;
}

}  // namespace

std::string ScheduleText(const v1::Strategy& strategy, int32_t stage_index) {
  const v1::Stage& stage = strategy.stages(stage_index);
  if (strategy.asynchronous())
    return strategy.vertical_sync() ? "async 1F1B, vertical sync" : "async 1F1B";
  std::vector<std::string> parts;
  int32_t loops = 0;
  for (const v1::Stage& other : strategy.stages()) {
    loops += std::find(other.devices().begin(), other.devices().end(),
                       stage.devices_size() > 0 ? stage.devices(0) : -1) != other.devices().end();
  }
  if (loops > 1) parts.push_back(absl::StrCat("looped x", loops));
  if (IsSplit(strategy, stage_index)) parts.push_back("split backward");
  if (strategy.orders_size() > 0) {
    if (parts.empty()) parts.push_back("ordered");
  } else if (stage.in_flight() >= strategy.mini_batch() &&
             strategy.mini_batch() > stage.micro_batch() * std::max(1, stage.k())) {
    parts.push_back("GPipe");
  } else {
    const int32_t k = std::max(1, stage.k());
    parts.push_back(absl::StrCat(k, "F", k, "B"));
  }
  if (stage.recompute()) parts.push_back("recompute");
  if (strategy.optimizer_sharding() == v1::OPTIMIZER_SHARDING_STATES && stage.devices_size() > 1)
    parts.push_back("shared optimizer state");
  if (strategy.optimizer_sharding() == v1::OPTIMIZER_SHARDING_GRADIENTS && stage.devices_size() > 1)
    parts.push_back("shared optimizer state and gradients");
  return absl::StrJoin(parts, ", ");
}

}  // namespace stagewright::cli
