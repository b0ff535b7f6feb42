#include "common/validation/validate_updates.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

// A step that leaves parameters to a later one.
bool IsPart(const Validation& v, Cell step) { return v.At(step).action.channel >= 0; }

// Nothing of the same stage computes after its optimizer step, and nothing but steps after a part.
absl::Status CheckLast(const Validation& v, Cell step) {
  const StageId stage = v.At(step).action.stage;
  const auto& body = v.Body(step.row);
  for (size_t i = step.action + 1; i < body.size(); ++i) {
    const Action& other = body[i].action;
    const bool may = IsPart(v, step) && other.kind == ActionKind::kOptimizerStep;
    if (other.stage == stage && IsCompute(other.kind) && !may)
      return v.Broken(step, ToString(body[i].action), " comes after the optimizer step");
  }
  return absl::OkStatus();
}

bool Holds(const std::vector<DeviceId>& devices, DeviceId device) {
  return std::find(devices.begin(), devices.end(), device) != devices.end();
}

// The stages of a reduction run on its devices, and on no others.
absl::Status CheckHolders(const Validation& v, size_t r) {
  const Reduction& reduction = v.program().reductions[r];
  std::vector<DeviceId> devices;
  for (StageId s : reduction.stages) {
    const auto& replicas = v.program().stages[s.index()].devices;
    devices.insert(devices.end(), replicas.begin(), replicas.end());
  }
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  if (devices != reduction.devices)
    return v.BrokenAnywhere("reduction ", r, ": its devices are not those of its stages");
  return absl::OkStatus();
}

// A sum waits for the last gradient here of every stage that holds its parameters, or for a
// mark of the pass that makes it.
absl::Status CheckSumWaits(const Validation& v, Cell sum) {
  const Reduction& reduction = v.program().reductions[v.At(sum).action.channel];
  const auto& holders = reduction.stages;
  if (reduction.sharded != (v.At(sum).action.kind == ActionKind::kReduceScatter)) {
    return v.Broken(sum, "the reduction's parameters are ", reduction.sharded ? "" : "not ",
                    "shared out by its devices");
  }
  if (std::find(holders.begin(), holders.end(), v.At(sum).action.stage) == holders.end())
    return v.Broken(sum, "the stage is not in the reduction");
  if (reduction.each_pass) return absl::OkStatus();  // CheckSumsOfPasses.
  for (StageId stage : holders) {
    for (ActionKind kind : {ActionKind::kBackward, ActionKind::kBackwardWeight}) {
      const auto& cells = v.Of(kind)[stage.index()];
      const auto last = std::find_if(cells.rbegin(), cells.rend(),
                                     [&](Cell cell) { return cell.row == sum.row; });
      if (last != cells.rend() && !WaitsFor(v.At(sum), last->action) &&
          !WaitsForMark(v.At(sum), last->action))
        return v.Broken(sum, "it does not wait for ", ToString(v.At(*last).action));
    }
  }
  return absl::OkStatus();
}

// Sums by row of their device.
using Sums = std::vector<std::vector<Cell>>;

bool MakesParameterGradients(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kBackwardWeight;
}

// Where the gradients of every micro-batch are summed: one sum for each pass of the stage here that
// makes some, which waits for it or its mark and for which the stage's next pass waits.
absl::Status CheckSumsOfPasses(const Validation& v, int32_t r, int32_t row,
                               const std::vector<Cell>& sums) {
  const StageId stage = v.program().reductions[r].stages.front();
  const int64_t micro_batch = v.program().stages[stage.index()].micro_batch;
  std::map<int64_t, Cell> left;  // By micro-batch.
  for (Cell sum : sums) {
    const Action& action = v.At(sum).action;
    if (action.channel != r) continue;
    if (action.samples.begin % micro_batch != 0 || action.samples.size() != micro_batch)
      return v.Broken(sum, "its samples are not a micro-batch of the stage");
    if (!left.try_emplace(action.samples.begin / micro_batch, sum).second)
      return v.Broken(sum, "the device sums these gradients twice");
  }
  std::optional<Cell> awaited;  // The sum of the pass before.
  for (int32_t i = 0; i < std::ssize(v.Body(row)); ++i) {
    const Cell pass{row, i};
    const Action& action = v.At(pass).action;
    const bool passes = IsCompute(action.kind) && action.kind != ActionKind::kOptimizerStep;
    if (action.stage != stage || !passes) continue;
    if (awaited.has_value() && !WaitsFor(v.At(pass), awaited->action))
      return v.Broken(pass, "it does not wait for ", ToString(v.At(*awaited).action));
    awaited.reset();
    if (!MakesParameterGradients(action.kind)) continue;
    const auto sum = left.extract(action.samples.begin / micro_batch);
    if (sum.empty())
      return v.Broken(pass, "the reduce-scatter of reduction ", r, " is missing after it");
    awaited = sum.mapped();
    if (!WaitsFor(v.At(*awaited), i) && !WaitsForMark(v.At(*awaited), i))
      return v.Broken(*awaited, "it does not wait for ", ToString(action));
  }
  if (left.empty()) return absl::OkStatus();
  return v.Broken(left.begin()->second, "no pass makes the gradients that it sums");
}

// The norm is that of summed gradients: it waits for all other sums of its device.
absl::Status CheckNormWaits(const Validation& v, const Sums& sums) {
  for (const std::vector<Cell>& row : sums) {
    for (Cell norm : row) {
      if (!v.program().reductions[v.At(norm).action.channel].gradient_norm) continue;
      for (Cell sum : row) {
        if (sum.action != norm.action && !WaitsFor(v.At(norm), sum.action))
          return v.Broken(norm, "it does not wait for ", ToString(v.At(sum).action));
      }
    }
  }
  return absl::OkStatus();
}

// Every stage takes part in the norm, so that each of its optimizer steps waits for it.
absl::Status CheckNorm(const Validation& v) {
  const auto& reductions = v.program().reductions;
  for (size_t r = 0; r < reductions.size(); ++r) {
    if (!reductions[r].gradient_norm) continue;
    if (r + 1 != reductions.size() || !reductions[r].parameters.empty() ||
        reductions[r].stages.size() != v.program().stages.size()) {
      return v.BrokenAnywhere("reduction ", r,
                              ": a norm is the last one, names no parameters and has all stages");
    }
  }
  return absl::OkStatus();
}

// An optimizer step waits for the sums here of what it updates: of all that its stage holds,
// or, of a part, of what the stage alone holds up to the reduction that it names.
absl::Status CheckStepWaits(const Validation& v, const Sums& sums, Cell step) {
  for (Cell sum : sums[step.row]) {
    const StageId stage = v.At(step).action.stage;
    const auto& holders = v.program().reductions[v.At(sum).action.channel].stages;
    const bool held = IsPart(v, step)
                          ? holders == std::vector<StageId>{stage} &&
                                v.At(sum).action.channel <= v.At(step).action.channel
                          : std::find(holders.begin(), holders.end(), stage) != holders.end();
    if (held && !WaitsFor(v.At(step), sum.action))
      return v.Broken(step, "it does not wait for ", ToString(v.At(sum).action));
  }
  return absl::OkStatus();
}

absl::Status CheckSteps(const Validation& v, const Sums& sums) {
  for (size_t s = 0; s < v.program().stages.size(); ++s) {
    const auto& steps = v.Of(ActionKind::kOptimizerStep)[s];
    size_t whole = 0;
    for (size_t i = 0; i < steps.size(); ++i) {
      whole += IsPart(v, steps[i]) ? 0 : 1;
      if (i > 0 && steps[i].row == steps[i - 1].row &&
          (!IsPart(v, steps[i - 1]) ||
           (IsPart(v, steps[i]) &&
            v.At(steps[i]).action.channel <= v.At(steps[i - 1]).action.channel)))
        return v.Broken(steps[i], "the stage steps twice");
      RETURN_IF_ERROR(CheckLast(v, steps[i]));
      RETURN_IF_ERROR(CheckStepWaits(v, sums, steps[i]));
    }
    if (!v.program().training || !v.program().stages[s].has_backward) continue;
    if (whole != v.program().stages[s].devices.size()) {
      return v.BrokenAnywhere("stage ", s, " has ", whole, " optimizer steps for ",
                              v.program().stages[s].devices.size(), " devices");
    }
  }
  return absl::OkStatus();
}

using ByReductionAndRow = std::map<std::pair<int32_t, int32_t>, Cell>;

// Every device that a reduction with `of` names has it in `cells`.
template <typename Predicate>
absl::Status CheckPresent(const Validation& v, const ByReductionAndRow& cells, Predicate of,
                          const char* what) {
  const auto& rows = v.program().devices;
  for (size_t r = 0; r < v.program().reductions.size(); ++r) {
    if (!of(v.program().reductions[r])) continue;
    for (DeviceId device : v.program().reductions[r].devices) {
      const auto row = std::find_if(rows.begin(), rows.end(),
                                    [&](const DeviceProgram& d) { return d.device == device; });
      if (row == rows.end() ||
          !cells.contains({static_cast<int32_t>(r), static_cast<int32_t>(row - rows.begin())})) {
        return v.BrokenAnywhere("device ", device.value(), ": the ", what, " of reduction ", r,
                                " is missing");
      }
    }
  }
  return absl::OkStatus();
}

// All-gathers of what is shared out: once per device of the reduction, after the step that updates
// its parameters.
absl::Status CheckGathers(const Validation& v) {
  ByReductionAndRow gathers;
  for (const auto& cells : v.Of(ActionKind::kAllGather)) {
    for (Cell cell : cells) {
      const int32_t r = v.At(cell).action.channel;
      const Reduction& reduction = v.program().reductions[r];
      if (!reduction.sharded)
        return v.Broken(cell, "the reduction's parameters are not shared out by its devices");
      if (reduction.stages.front() != v.At(cell).action.stage)
        return v.Broken(cell, "the stage is not in the reduction");
      if (!Holds(reduction.devices, v.DeviceOf(cell)))
        return v.Broken(cell, "the device is not in the reduction");
      if (!gathers.try_emplace({r, cell.row}, cell).second)
        return v.Broken(cell, "the device gathers these parameters twice");
      const std::vector<int32_t>& after = v.At(cell).after;
      const bool follows = std::any_of(after.begin(), after.end(), [&](int32_t before) {
        const Action& step = v.Body(cell.row)[before].action;
        return step.kind == ActionKind::kOptimizerStep && step.stage == reduction.stages.front() &&
               (step.channel < 0 || step.channel >= r);
      });
      if (!follows) return v.Broken(cell, "it does not wait for the step that updates them");
    }
  }
  if (!v.program().training) return absl::OkStatus();
  return CheckPresent(
      v, gathers, [](const Reduction& reduction) { return reduction.sharded; }, "all-gather");
}

}  // namespace

// Sums and optimizer steps: once per device that has them, after the backward passes.
absl::Status CheckUpdates(const Validation& v) {
  for (size_t r = 0; r < v.program().reductions.size(); ++r) RETURN_IF_ERROR(CheckHolders(v, r));
  RETURN_IF_ERROR(CheckNorm(v));
  Sums by_row(v.program().devices.size());
  ByReductionAndRow sums;
  for (ActionKind kind : {ActionKind::kAllReduce, ActionKind::kReduceScatter}) {
    for (const auto& cells : v.Of(kind)) {
      for (Cell cell : cells) {
        const int32_t r = v.At(cell).action.channel;
        by_row[cell.row].push_back(cell);
        if (!Holds(v.program().reductions[r].devices, v.DeviceOf(cell)))
          return v.Broken(cell, "the device is not in the reduction");
        if (!sums.try_emplace({r, cell.row}, cell).second && !v.program().reductions[r].each_pass)
          return v.Broken(cell, "the device sums these gradients twice");
        RETURN_IF_ERROR(CheckSumWaits(v, cell));
      }
    }
  }
  if (v.program().training) {
    for (bool sharded : {false, true}) {
      RETURN_IF_ERROR(CheckPresent(
          v, sums, [&](const Reduction& reduction) { return reduction.sharded == sharded; },
          sharded ? "reduce-scatter" : "all-reduce"));
    }
  }
  for (const auto& [place, sum] : sums) {
    const auto [r, row] = place;
    if (v.program().reductions[r].each_pass)
      RETURN_IF_ERROR(CheckSumsOfPasses(v, r, row, by_row[row]));
  }
  RETURN_IF_ERROR(CheckGathers(v));
  RETURN_IF_ERROR(CheckNormWaits(v, by_row));
  return CheckSteps(v, by_row);
}

}  // namespace stagewright
