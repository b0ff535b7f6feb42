#include "common/schedule/validate.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/schedule/cursor.h"
#include "common/schedule/dry_run.h"

namespace stagewright {
namespace {

// Where a compute action stands.
struct Cell {
  int32_t row = 0;
  int32_t action = 0;
};

class Validator {
 public:
  explicit Validator(const Program& program) : program_(program) {}

  absl::Status Run(const std::vector<Bytes>& memory_budget) {
    RETURN_IF_ERROR(Collect());
    RETURN_IF_ERROR(CheckSamples());
    RETURN_IF_ERROR(CheckTransfers());
    RETURN_IF_ERROR(CheckWaits());
    RETURN_IF_ERROR(CheckUpdates());
    RETURN_IF_ERROR(CheckMemoryReturns());
    RETURN_IF_ERROR(CheckNoDeadlock());
    return CheckPeaks(memory_budget);
  }

 private:
  using PerStage = std::vector<std::vector<Cell>>;  // By stage, in list order of each row.

  const std::vector<ProgramAction>& Body(int32_t row) const { return program_.devices[row].body; }
  const ProgramAction& At(Cell cell) const { return Body(cell.row)[cell.action]; }
  DeviceId DeviceOf(Cell cell) const { return program_.devices[cell.row].device; }

  template <typename... Args>
  absl::Status Broken(Cell cell, const Args&... args) const {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", DeviceOf(cell).value(), ", ", ToString(At(cell).action), ": ",
                     absl::StrCat(args...), "\n", Grid(program_, cell.row, cell.action)));
  }
  template <typename... Args>
  absl::Status BrokenAnywhere(const Args&... args) const {
    return absl::FailedPreconditionError(absl::StrCat(absl::StrCat(args...), "\n", Grid(program_)));
  }

  // Sorts the actions by kind and stage.
  absl::Status Collect() {
    by_kind_.assign(static_cast<size_t>(ActionKind::kOptimizerStep) + 1,
                    PerStage(program_.stages.size()));
    for (size_t d = 0; d < program_.devices.size(); ++d) {
      for (size_t i = 0; i < program_.devices[d].body.size(); ++i) {
        const Cell cell{static_cast<int32_t>(d), static_cast<int32_t>(i)};
        const Action& action = At(cell).action;
        const auto& devices = program_.stages[action.stage.index()].devices;
        if (std::find(devices.begin(), devices.end(), DeviceOf(cell)) == devices.end()) {
          return Broken(cell, "stage ", action.stage.value(), " is not on this device");
        }
        if (!program_.training && action.kind != ActionKind::kForward &&
            action.kind != ActionKind::kSendActivation &&
            action.kind != ActionKind::kReceiveActivation) {
          return Broken(cell, "a program without training only runs forward");
        }
        Of(action.kind)[action.stage.index()].push_back(cell);
      }
    }
    return absl::OkStatus();
  }

  PerStage& Of(ActionKind kind) { return by_kind_[static_cast<size_t>(kind)]; }

  // Every sample once per stage; on each device in sample order.
  absl::Status CheckTiling(StageId stage, const std::vector<Cell>& cells, const char* what) {
    std::vector<Cell> sorted = cells;
    for (size_t i = 1; i < cells.size(); ++i) {
      if (cells[i].row == cells[i - 1].row &&
          At(cells[i]).action.samples.begin < At(cells[i - 1]).action.samples.begin) {
        return Broken(cells[i], "C4: ", what, " passes are not in sample order");
      }
    }
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](Cell a, Cell b) { return At(a).action.samples < At(b).action.samples; });
    int64_t done = 0;
    for (Cell cell : sorted) {
      const SampleRange samples = At(cell).action.samples;
      if (samples.begin < done) {
        return Broken(cell, "C4: samples from ", samples.begin, " to ", std::min(done, samples.end),
                      " have their ", what, " pass twice");
      }
      if (samples.begin > done) {
        return Broken(cell, "C4: samples from ", done, " to ", samples.begin, " of stage ",
                      stage.value(), " have no ", what, " pass");
      }
      done = samples.end;
    }
    if (done == program_.mini_batch) return absl::OkStatus();
    const std::string missing =
        absl::StrCat("C4: samples from ", done, " to ", program_.mini_batch, " of stage ",
                     stage.value(), " have no ", what, " pass");
    return sorted.empty() ? BrokenAnywhere(missing) : Broken(sorted.back(), missing);
  }

  // On each device, the i-th of `later` covers the samples of the i-th of `earlier` and follows it.
  absl::Status CheckFollows(const std::vector<Cell>& earlier, const std::vector<Cell>& later) {
    for (size_t i = 0; i < later.size(); ++i) {
      const Action& action = At(later[i]).action;
      if (i >= earlier.size() || earlier[i].row != later[i].row ||
          At(earlier[i]).action.samples != action.samples) {
        return Broken(later[i], "C4: no pass in the same order covered these samples before");
      }
      if (earlier[i].action > later[i].action) {
        return Broken(later[i], "C4: it comes before ", ToString(At(earlier[i]).action));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckSamples() {
    for (size_t s = 0; s < program_.stages.size(); ++s) {
      const StageId stage(static_cast<int64_t>(s));
      const auto& forwards = Of(ActionKind::kForward)[s];
      RETURN_IF_ERROR(CheckTiling(stage, forwards, "forward"));
      const auto& whole = Of(ActionKind::kBackward)[s];
      const auto& input = Of(ActionKind::kBackwardInput)[s];
      const auto& weight = Of(ActionKind::kBackwardWeight)[s];
      const auto& again = Of(ActionKind::kRecompute)[s];
      if (!program_.training || !program_.stages[s].has_backward) {
        for (const auto* cells : {&whole, &input, &weight, &again}) {
          if (!cells->empty()) return Broken(cells->front(), "the stage has no backward pass");
        }
        continue;
      }
      // A stage runs whole backward passes or, everywhere, their two halves.
      const bool halves = whole.empty() && !input.empty();
      if (!whole.empty() && !(input.empty() && weight.empty()))
        return Broken((input.empty() ? weight : input).front(),
                      "C4: the stage has whole backward passes too");
      const auto& backwards = halves ? input : whole;
      RETURN_IF_ERROR(CheckTiling(stage, backwards, "backward"));
      RETURN_IF_ERROR(CheckFollows(forwards, backwards));
      if (halves) {
        RETURN_IF_ERROR(CheckTiling(stage, weight, "weight gradient"));
        RETURN_IF_ERROR(CheckFollows(input, weight));
      }
      if (!again.empty()) {
        RETURN_IF_ERROR(CheckFollows(forwards, again));
        RETURN_IF_ERROR(CheckFollows(again, backwards));
      }
    }
    return absl::OkStatus();
  }

  // Which stage and device an end of a channel must be on.
  absl::Status CheckEnd(Cell cell) const {
    const Action& action = At(cell).action;
    const Channel& channel = program_.channels[action.channel];
    const bool upper =
        action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kReceiveGradient;
    const StageId stage = upper ? channel.from : channel.to;
    const DeviceId device = upper ? channel.source : channel.target;
    if (channel.local()) return Broken(cell, "the channel's ends share a device");
    if (action.stage != stage || DeviceOf(cell) != device) {
      return Broken(cell, "this end of the channel is stage ", stage.value(), " on device ",
                    device.value());
    }
    const bool gradient =
        action.kind == ActionKind::kSendGradient || action.kind == ActionKind::kReceiveGradient;
    if (gradient && !channel.has_gradient) return Broken(cell, "the channel has no gradients");
    return absl::OkStatus();
  }

  // Sends and receives match in order per channel and direction.
  absl::Status CheckTransfers() {
    std::map<LaneKey, std::vector<Cell>> lanes;
    for (size_t d = 0; d < program_.devices.size(); ++d) {
      for (size_t i = 0; i < program_.devices[d].body.size(); ++i) {
        const Cell cell{static_cast<int32_t>(d), static_cast<int32_t>(i)};
        if (!IsTransfer(At(cell).action.kind)) continue;
        RETURN_IF_ERROR(CheckEnd(cell));
        lanes[LaneOf(At(cell).action)].push_back(cell);
      }
    }
    for (size_t c = 0; c < program_.channels.size(); ++c) {
      const auto channel = static_cast<int32_t>(c);
      const auto lane = [&](ActionKind kind) -> const std::vector<Cell>& {
        return lanes[{channel, static_cast<int32_t>(kind)}];
      };
      RETURN_IF_ERROR(
          CheckMatch(lane(ActionKind::kSendActivation), lane(ActionKind::kReceiveActivation)));
      RETURN_IF_ERROR(
          CheckMatch(lane(ActionKind::kSendGradient), lane(ActionKind::kReceiveGradient)));
    }
    return absl::OkStatus();
  }

  absl::Status CheckMatch(const std::vector<Cell>& sends, const std::vector<Cell>& receives) {
    for (size_t i = 0; i < std::max(sends.size(), receives.size()); ++i) {
      if (i >= receives.size()) return Broken(sends[i], "the send has no receive");
      if (i >= sends.size()) return Broken(receives[i], "the receive has no send");
      if (At(sends[i]).action.samples != At(receives[i]).action.samples) {
        return Broken(receives[i], "it is number ", i, " of its channel and meets ",
                      ToString(At(sends[i]).action), " of device ", DeviceOf(sends[i]).value());
      }
    }
    return absl::OkStatus();
  }

  // Which stages feed each stage, over channels.
  struct Neighbours {
    std::vector<std::vector<StageId>> above, below;  // `below`: those that return gradients.
  };
  Neighbours MakeNeighbours() const {
    Neighbours result{std::vector<std::vector<StageId>>(program_.stages.size()),
                      std::vector<std::vector<StageId>>(program_.stages.size())};
    const auto add = [](std::vector<StageId>& to, StageId stage) {
      if (std::find(to.begin(), to.end(), stage) == to.end()) to.push_back(stage);
    };
    for (const Channel& channel : program_.channels) {
      add(result.above[channel.to.index()], channel.from);
      if (program_.training && channel.has_gradient)
        add(result.below[channel.from.index()], channel.to);
    }
    return result;
  }

  // Forwards wait for all activations they read, backwards for all gradients, sends for what they
  // send.
  absl::Status CheckWaits() {
    const Neighbours neighbours = MakeNeighbours();
    for (size_t d = 0; d < program_.devices.size(); ++d) {
      for (size_t i = 0; i < program_.devices[d].body.size(); ++i) {
        const Cell cell{static_cast<int32_t>(d), static_cast<int32_t>(i)};
        const Action& action = At(cell).action;
        if (action.kind == ActionKind::kForward) {
          RETURN_IF_ERROR(CheckInputs(cell, neighbours.above[action.stage.index()], true));
        } else if (action.kind == ActionKind::kBackward ||
                   action.kind == ActionKind::kBackwardInput) {
          RETURN_IF_ERROR(CheckInputs(cell, neighbours.below[action.stage.index()], false));
        } else if (IsSend(action.kind)) {
          RETURN_IF_ERROR(CheckSend(cell));
        }
      }
    }
    return absl::OkStatus();
  }

  static bool Produces(ActionKind kind, bool forward) {
    return forward ? kind == ActionKind::kForward
                   : kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput;
  }

  // Samples of `cell` that come from stage `from`: in messages, or from a task of this device.
  absl::Status CheckInputs(Cell cell, const std::vector<StageId>& sources, bool forward) const {
    const SampleRange needed = At(cell).action.samples;
    const ActionKind receive =
        forward ? ActionKind::kReceiveActivation : ActionKind::kReceiveGradient;
    for (StageId source : sources) {
      int64_t found = 0;
      for (int32_t before : At(cell).after) {
        const Action& input = Body(cell.row)[before].action;
        const bool message = input.kind == receive && input.stage == At(cell).action.stage &&
                             source == (forward ? program_.channels[input.channel].from
                                                : program_.channels[input.channel].to);
        const bool local = Produces(input.kind, forward) && input.stage == source;
        if (message || local) found += Intersect(input.samples, needed).size();
      }
      if (found != needed.size()) {
        return Broken(cell, "it waits for ", found, " of ", needed.size(), " samples' ",
                      forward ? "activations" : "gradients", " from stage ", source.value());
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckSend(Cell cell) const {
    const Action& action = At(cell).action;
    const bool forward = action.kind == ActionKind::kSendActivation;
    for (int32_t before : At(cell).after) {
      const Action& source = Body(cell.row)[before].action;
      if (Produces(source.kind, forward) && source.stage == action.stage &&
          source.samples.Contains(action.samples)) {
        return absl::OkStatus();
      }
    }
    return Broken(cell, "it does not wait for the pass that makes what it sends");
  }

  // All-reduces and optimizer steps: once per device that has them, after the backward passes.
  absl::Status CheckUpdates() {
    std::map<std::pair<int32_t, int32_t>, Cell> sums;  // (reduction, row)
    for (const auto& cells : Of(ActionKind::kAllReduce)) {
      for (Cell cell : cells) {
        const int32_t r = At(cell).action.channel;
        const auto& devices = program_.reductions[r].devices;
        if (std::find(devices.begin(), devices.end(), DeviceOf(cell)) == devices.end())
          return Broken(cell, "the device is not in the reduction");
        if (!sums.try_emplace({r, cell.row}, cell).second)
          return Broken(cell, "the device sums these gradients twice");
      }
    }
    for (size_t r = 0; program_.training && r < program_.reductions.size(); ++r) {
      for (DeviceId device : program_.reductions[r].devices) {
        const auto row = std::find_if(program_.devices.begin(), program_.devices.end(),
                                      [&](const DeviceProgram& d) { return d.device == device; });
        if (row == program_.devices.end() ||
            !sums.contains(
                {static_cast<int32_t>(r), static_cast<int32_t>(row - program_.devices.begin())})) {
          return BrokenAnywhere("device ", device.value(), ": the all-reduce of reduction ", r,
                                " is missing");
        }
      }
    }
    return CheckSteps();
  }

  absl::Status CheckSteps() {
    for (size_t s = 0; s < program_.stages.size(); ++s) {
      const auto& steps = Of(ActionKind::kOptimizerStep)[s];
      for (size_t i = 0; i < steps.size(); ++i) {
        if (i > 0 && steps[i].row == steps[i - 1].row)
          return Broken(steps[i], "the stage steps twice");
        RETURN_IF_ERROR(CheckLast(steps[i]));
      }
      if (!program_.training || !program_.stages[s].has_backward) continue;
      if (steps.size() != program_.stages[s].devices.size()) {
        return BrokenAnywhere("stage ", s, " has ", steps.size(), " optimizer steps for ",
                              program_.stages[s].devices.size(), " devices");
      }
    }
    return absl::OkStatus();
  }

  // Nothing of the same stage computes after its optimizer step.
  absl::Status CheckLast(Cell step) const {
    const StageId stage = At(step).action.stage;
    const auto& body = Body(step.row);
    for (size_t i = step.action + 1; i < body.size(); ++i) {
      if (body[i].action.stage == stage && IsCompute(body[i].action.kind))
        return Broken(step, ToString(body[i].action), " comes after the optimizer step");
    }
    return absl::OkStatus();
  }

  absl::Status CheckMemoryReturns() const {
    for (const DeviceProgram& device : program_.devices) {
      Bytes balance = 0;
      for (const ProgramAction& action : device.body) balance += action.acquire - action.release;
      if (balance != 0) {
        return BrokenAnywhere("device ", device.device.value(),
                              ": memory does not return to zero: ", balance,
                              " bytes are left after the step");
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckNoDeadlock() const {
    const std::vector<Stuck> stuck = DryRun(program_);
    if (stuck.empty()) return absl::OkStatus();
    std::vector<std::string> waits;
    for (const Stuck& one : stuck) {
      std::string text = absl::StrCat("device ", program_.devices[one.row].device.value(),
                                      " waits at ", ToString(Body(one.row)[one.action].action));
      for (size_t i = 0; i < one.waits_for.size(); ++i) {
        absl::StrAppend(&text, i == 0 ? " for " : ", ",
                        ToString(Body(one.row)[one.waits_for[i]].action));
      }
      waits.push_back(std::move(text));
    }
    return absl::FailedPreconditionError(
        absl::StrCat("C4: deadlock: ", absl::StrJoin(waits, "; "), "\n",
                     Grid(program_, stuck.front().row, stuck.front().action)));
  }

  absl::Status CheckPeaks(const std::vector<Bytes>& budget) const {
    for (size_t d = 0; d < program_.devices.size(); ++d) {
      const DeviceProgram& device = program_.devices[d];
      const auto [peak, least, peak_action] = Extremes(device);
      const Cell cell{static_cast<int32_t>(d), peak_action};
      if (least < 0) {
        return BrokenAnywhere("device ", device.device.value(), ": memory gets negative: ", least,
                              " bytes");
      }
      if (device.device.index() < budget.size() && peak > budget[device.device.index()]) {
        return Broken(cell, "memory: ", FormatBytes(peak), " needed here, ",
                      FormatBytes(peak - budget[device.device.index()]), " over the budget of ",
                      FormatBytes(budget[device.device.index()]));
      }
    }
    return absl::OkStatus();
  }

 public:
  struct MemoryExtremes {
    Bytes peak = 0;  // Resident bytes included.
    Bytes least = 0;
    int32_t peak_action = 0;
  };

  // Runs one device alone. Receives start as early as they may, so that the peak counts them.
  static MemoryExtremes Extremes(const DeviceProgram& device) {
    MemoryExtremes result{device.resident, 0, 0};
    Cursor cursor(device.body);
    while (!cursor.Ready().empty()) {
      int32_t next = cursor.Ready().front();
      const auto rank = [&](int32_t i) {
        const ActionKind kind = device.body[i].action.kind;
        return IsReceive(kind) ? 0 : IsCompute(kind) ? 2 : 1;
      };
      for (int32_t candidate : cursor.Ready()) {
        if (rank(candidate) < rank(next)) next = candidate;
      }
      cursor.Start(next);
      if (device.resident + cursor.memory() > result.peak) {
        result.peak = device.resident + cursor.memory();
        result.peak_action = next;
      }
      cursor.Finish(next);
      result.least = std::min(result.least, cursor.memory());
    }
    return result;
  }

 private:
  const Program& program_;
  std::vector<PerStage> by_kind_;
};

}  // namespace

absl::Status Validate(const Program& program, const std::vector<Bytes>& memory_budget) {
  if (absl::Status status = CheckIds(program); !status.ok())
    return absl::FailedPreconditionError(status.message());
  return Validator(program).Run(memory_budget);
}

Bytes PeakMemory(const DeviceProgram& device) { return Validator::Extremes(device).peak; }

}  // namespace stagewright
