#include "common/validation/validate_asynchronous.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

// The reductions that the updates of a stage need.
std::vector<int32_t> ReductionsOf(const Program& program, StageId stage) {
  std::vector<int32_t> reductions;
  for (size_t r = 0; r < program.reductions.size(); ++r) {
    const auto& stages = program.reductions[r].stages;
    if (std::find(stages.begin(), stages.end(), stage) != stages.end())
      reductions.push_back(static_cast<int32_t>(r));
  }
  return reductions;
}

// Walks the device of one stage.
absl::Status CheckRow(const Validation& v, int32_t row) {
  const std::vector<ProgramAction>& body = v.Body(row);
  if (body.empty()) return absl::OkStatus();
  const StageId stage = body.front().action.stage;
  const std::vector<int32_t> reductions = ReductionsOf(v.program(), stage);
  Cell backward{row, -1};  // The backward pass that waits for its update; -1: none.
  std::vector<Cell> sums;  // Sums since that backward pass.
  for (size_t i = 0; i < body.size(); ++i) {
    const Cell cell{row, static_cast<int32_t>(i)};
    const Action& action = body[i].action;
    if (action.stage != stage)
      return v.Broken(cell, "an asynchronous program has one stage per device");
    if (IsCollective(action.kind)) {
      if (action.kind != ActionKind::kAllReduce)
        return v.Broken(cell, "an asynchronous program sums gradients by all-reduces");
      if (backward.action < 0) return v.Broken(cell, "no backward pass made gradients to sum");
      if (sums.size() >= reductions.size() || action.channel != reductions[sums.size()])
        return v.Broken(cell, "it is not the sum that is due");
      if (!WaitsFor(body[i], backward.action) && !WaitsForMark(body[i], backward.action))
        return v.Broken(cell, "it does not wait for ", ToString(v.At(backward).action));
      sums.push_back(cell);
    } else if (action.kind == ActionKind::kOptimizerStep) {
      if (action.channel >= 0) return v.Broken(cell, "an asynchronous update comes whole");
      if (backward.action < 0) return v.Broken(cell, "no backward pass made gradients to use");
      if (sums.size() != reductions.size()) {
        return v.Broken(cell, "the all-reduce of reduction ", reductions[sums.size()],
                        " is missing before it");
      }
      for (Cell sum : sums) {
        if (!WaitsFor(body[i], sum.action))
          return v.Broken(cell, "it does not wait for ", ToString(v.At(sum).action));
      }
      backward.action = -1;
      sums.clear();
    } else if (IsCompute(action.kind)) {
      if (backward.action >= 0)
        return v.Broken(cell, "it comes before the update of ", ToString(v.At(backward).action));
      const bool ends =
          action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight;
      if (ends) backward = cell;
    }
  }
  if (backward.action >= 0) return v.Broken(backward, "its update is missing");
  return absl::OkStatus();
}

// Micro-batches in flight: the forward passes before the first backward pass.
int64_t InFlight(const std::vector<ProgramAction>& body) {
  int64_t forwards = 0;
  for (const ProgramAction& item : body) {
    if (item.action.kind == ActionKind::kBackward || item.action.kind == ActionKind::kBackwardInput)
      break;
    if (item.action.kind == ActionKind::kForward) ++forwards;
  }
  return forwards;
}

// With a lag anywhere, all stages with a backward pass use the same version for a micro-batch: lags
// fill up what a stage has in flight to the same number, and the stage with most has none.
absl::Status CheckLags(const Validation& v) {
  const std::vector<ProgramStage>& stages = v.program().stages;
  const bool synced = std::any_of(stages.begin(), stages.end(),
                                  [](const ProgramStage& stage) { return stage.version_lag > 0; });
  if (!synced) return absl::OkStatus();
  std::vector<std::pair<StageId, int64_t>> micro_batches_in_flight;
  int64_t most = 0;
  for (const DeviceProgram& device : v.program().devices) {
    if (device.body.empty()) continue;
    const StageId stage = device.body.front().action.stage;
    if (!stages[stage.index()].has_backward) continue;
    micro_batches_in_flight.emplace_back(stage, InFlight(device.body));
    most = std::max(most, micro_batches_in_flight.back().second);
  }
  for (const auto& [stage, own] : micro_batches_in_flight) {
    const int32_t lag = stages[stage.index()].version_lag;
    if (own + lag == most) continue;
    return v.BrokenAnywhere("stage ", stage.value(), " has ", own,
                            " micro-batches in flight and a version lag of ", lag, "; with ", most,
                            " in flight elsewhere, the lag must be ", most - own);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckAsynchronousUpdates(const Validation& v) {
  for (const Reduction& reduction : v.program().reductions) {
    if (reduction.gradient_norm)
      return v.BrokenAnywhere("an asynchronous program has no norm of all gradients");
    if (reduction.sharded)
      return v.BrokenAnywhere("an asynchronous program keeps optimizer state whole");
  }
  for (size_t d = 0; d < v.program().devices.size(); ++d)
    RETURN_IF_ERROR(CheckRow(v, static_cast<int32_t>(d)));
  return CheckLags(v);
}

}  // namespace stagewright
