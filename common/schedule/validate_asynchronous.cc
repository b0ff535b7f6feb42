#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/schedule/validation.h"

namespace stagewright {
namespace {

bool WaitsFor(const Validation& v, Cell cell, int32_t action) {
  const std::vector<int32_t>& after = v.At(cell).after;
  return std::binary_search(after.begin(), after.end(), action);
}

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
  Cell backward{row, -1};  // That waits for its update; -1: none.
  std::vector<Cell> sums;  // Since then.
  for (size_t i = 0; i < body.size(); ++i) {
    const Cell cell{row, static_cast<int32_t>(i)};
    const Action& action = body[i].action;
    if (action.stage != stage)
      return v.Broken(cell, "an asynchronous program has one stage per device");
    if (action.kind == ActionKind::kAllReduce) {
      if (backward.action < 0) return v.Broken(cell, "no backward pass made gradients to sum");
      if (sums.size() >= reductions.size() || action.channel != reductions[sums.size()])
        return v.Broken(cell, "it is not the sum that is due");
      if (!WaitsFor(v, cell, backward.action))
        return v.Broken(cell, "it does not wait for ", ToString(v.At(backward).action));
      sums.push_back(cell);
    } else if (action.kind == ActionKind::kOptimizerStep) {
      if (backward.action < 0) return v.Broken(cell, "no backward pass made gradients to use");
      if (sums.size() != reductions.size()) {
        return v.Broken(cell, "the all-reduce of reduction ", reductions[sums.size()],
                        " is missing before it");
      }
      for (Cell sum : sums) {
        if (!WaitsFor(v, cell, sum.action))
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

}  // namespace

absl::Status CheckAsynchronousUpdates(const Validation& v) {
  for (const Reduction& reduction : v.program().reductions) {
    if (reduction.gradient_norm)
      return v.BrokenAnywhere("an asynchronous program has no norm of all gradients");
  }
  for (size_t d = 0; d < v.program().devices.size(); ++d)
    RETURN_IF_ERROR(CheckRow(v, static_cast<int32_t>(d)));
  return absl::OkStatus();
}

}  // namespace stagewright
