#include "clients/cli/view/plan_figures.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"

namespace stagewright::cli {

int32_t DevicesUsed(const v1::Strategy& strategy) {
  std::set<int32_t> devices;
  for (const v1::Stage& stage : strategy.stages())
    devices.insert(stage.devices().begin(), stage.devices().end());
  return static_cast<int32_t>(devices.size());
}

Bytes PeakMemory(const v1::Evaluation& evaluation) {
  Bytes peak = 0;
  for (const v1::DeviceReport& device : evaluation.devices())
    peak = std::max(peak, Bytes(device.peak_memory_bytes()));
  return peak;
}

Bytes PeakMemory(const v1::Plan& plan) { return PeakMemory(plan.evaluation()); }

std::optional<double> GapRatio(const v1::PlanResponse& response) {
  if (!response.has_best() || response.lower_bound_ns() <= 0) return std::nullopt;
  return static_cast<double>(response.best().evaluation().iteration_ns()) /
             static_cast<double>(response.lower_bound_ns()) -
         1;
}

std::string TerminationText(v1::Termination termination) {
  return absl::AsciiStrToLower(
      v1::Termination_Name(termination).substr(std::string("TERMINATION_").size()));
}

}  // namespace stagewright::cli
