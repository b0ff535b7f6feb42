#include "common/validation/validate.h"

#include <algorithm>
#include <map>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/program/check_ids.h"
#include "common/program/cursor.h"
#include "common/program/grid.h"
#include "common/program/unroll.h"
#include "common/validation/dry_run.h"
#include "common/validation/validate_asynchronous.h"
#include "common/validation/validate_samples.h"
#include "common/validation/validate_transfers.h"
#include "common/validation/validate_updates.h"
#include "common/validation/validation.h"

namespace stagewright {
namespace {

// Every action is on a device of its stage and of a kind that the program may have.
absl::Status CheckPlaces(const Validation& v) {
  for (size_t d = 0; d < v.program().devices.size(); ++d) {
    for (size_t i = 0; i < v.program().devices[d].body.size(); ++i) {
      const Cell cell{static_cast<int32_t>(d), static_cast<int32_t>(i)};
      const Action& action = v.At(cell).action;
      const auto& devices = v.program().stages[action.stage.index()].devices;
      if (std::find(devices.begin(), devices.end(), v.DeviceOf(cell)) == devices.end())
        return v.Broken(cell, "stage ", action.stage.value(), " is not on this device");
      if (!v.program().training && action.kind != ActionKind::kForward &&
          action.kind != ActionKind::kSendActivation &&
          action.kind != ActionKind::kReceiveActivation) {
        return v.Broken(cell, "a program without training only runs forward");
      }
    }
  }
  return absl::OkStatus();
}

// Steps of an asynchronous program after which nothing new happens: each section follows each that
// it can.
constexpr int64_t kUnrolledSteps = 3;

struct MemoryExtremes {
  Bytes peak = 0;  // Resident bytes included.
  Bytes least = 0;
  int32_t peak_action = 0;
};

// Runs one device alone. Receives start as early as they may, and sums that wait for marks run
// within the pass that has these, so that the peak counts them.
class AloneRun {
 public:
  explicit AloneRun(const DeviceProgram& device)
      : device_(device), cursor_(device.body), result_{device.resident, 0, 0} {
    for (const ProgramAction& item : device.body) {
      for (const PassMark& mark : item.after_marks) marks_[mark.action].push_back(mark.node);
    }
  }

  MemoryExtremes Run() {
    while (!cursor_.Ready().empty()) {
      int32_t next = cursor_.Ready().front();
      for (int32_t candidate : cursor_.Ready()) {
        if (Rank(candidate) < Rank(next)) next = candidate;
      }
      Start(next);
      RunWithin(next);
      Finish(next);
    }
    return result_;
  }

 private:
  int Rank(int32_t index) const {
    const ActionKind kind = device_.body[index].action.kind;
    return IsReceive(kind) ? 0 : IsCompute(kind) ? 2 : 1;
  }

  void Start(int32_t index) {
    cursor_.Start(index);
    if (device_.resident + cursor_.memory() <= result_.peak) return;
    result_.peak = device_.resident + cursor_.memory();
    result_.peak_action = index;
  }

  void Finish(int32_t index) {
    cursor_.Finish(index);
    result_.least = std::min(result_.least, cursor_.memory());
  }

  void RunWithin(int32_t pass) {
    const auto marks = marks_.find(pass);
    if (marks == marks_.end()) return;
    for (int32_t node : marks->second) cursor_.Reach(pass, node);
    const auto sum = [&] {
      const auto& ready = cursor_.Ready();
      return std::find_if(ready.begin(), ready.end(),
                          [&](int32_t index) { return IsSum(device_.body[index].action.kind); });
    };
    for (auto next = sum(); next != cursor_.Ready().end(); next = sum()) {
      const int32_t index = *next;
      Start(index);
      Finish(index);
    }
  }

  const DeviceProgram& device_;
  Cursor cursor_;
  std::map<int32_t, std::vector<int32_t>> marks_;  // By pass: nodes.
  MemoryExtremes result_;
};

MemoryExtremes Extremes(const DeviceProgram& device) { return AloneRun(device).Run(); }

// Equal for devices that are WorkAlike.
size_t HashOfWork(const DeviceProgram& device) {
  size_t hash = device.body.size();
  for (const ProgramAction& item : device.body) {
    hash = absl::HashOf(hash, item.action.kind, item.acquire.count(), item.release.count());
  }
  return hash;
}

// Whether all that two bodies differ in is which stages, samples and channels they name.
bool WorkAlike(const DeviceProgram& a, const DeviceProgram& b) {
  absl::flat_hash_map<int32_t, int32_t> there;
  absl::flat_hash_map<int32_t, int32_t> back;
  const auto alike = [&](const ProgramAction& x, const ProgramAction& y) {
    if (x.action.kind != y.action.kind || x.acquire != y.acquire || x.release != y.release ||
        x.after != y.after || x.after_marks != y.after_marks)
      return false;
    const int32_t channel = x.action.channel;
    const int32_t other = y.action.channel;
    return there.try_emplace(channel, other).first->second == other &&
           back.try_emplace(other, channel).first->second == channel;
  };
  return std::equal(a.body.begin(), a.body.end(), b.body.begin(), b.body.end(), alike);
}

absl::Status CheckMemoryReturns(const Validation& v) {
  for (const DeviceProgram& device : v.program().devices) {
    Bytes balance = 0;
    for (const ProgramAction& action : device.body) balance += action.acquire - action.release;
    if (balance != 0) {
      return v.BrokenAnywhere("device ", device.device.value(),
                              ": memory does not return to zero: ", balance,
                              " bytes are left after the step");
    }
  }
  return absl::OkStatus();
}

// The device to point at: one that waits for its own later work is wrong by itself; the others may
// only wait for it.
const Stuck& Culprit(const Validation& v, const std::vector<Stuck>& stuck) {
  for (const Stuck& one : stuck) {
    for (int32_t before : one.waits_for) {
      if (IsCompute(v.Body(one.row)[before].action.kind)) return one;
    }
  }
  return stuck.front();
}

absl::Status CheckNoDeadlock(const Validation& v) {
  const std::vector<Stuck> stuck = DryRun(v.program());
  if (stuck.empty()) return absl::OkStatus();
  std::vector<std::string> waits;
  for (const Stuck& one : stuck) {
    std::string text = absl::StrCat("device ", v.program().devices[one.row].device.value(),
                                    " waits at ", ToString(v.Body(one.row)[one.action].action));
    for (size_t i = 0; i < one.waits_for.size(); ++i) {
      absl::StrAppend(&text, i == 0 ? " for " : ", ",
                      ToString(v.Body(one.row)[one.waits_for[i]].action));
    }
    waits.push_back(std::move(text));
  }
  const Stuck& culprit = Culprit(v, stuck);
  return absl::FailedPreconditionError(
      absl::StrCat("C4: deadlock: ", absl::StrJoin(waits, "; "), "\n",
                   Grid(v.program(), culprit.row, culprit.action)));
}

absl::Status CheckPeaks(const Validation& v, const std::vector<Bytes>& budget) {
  for (size_t d = 0; d < v.program().devices.size(); ++d) {
    const DeviceProgram& device = v.program().devices[d];
    const auto [peak, least, peak_action] = Extremes(device);
    const Cell cell{static_cast<int32_t>(d), peak_action};
    if (least < 0) {
      return v.BrokenAnywhere("device ", device.device.value(), ": memory gets negative: ", least,
                              " bytes");
    }
    if (device.device.index() < budget.size() && peak > budget[device.device.index()]) {
      return v.Broken(cell, "memory: ", FormatBytes(peak), " needed here, ",
                      FormatBytes(peak - budget[device.device.index()]), " over the budget of ",
                      FormatBytes(budget[device.device.index()]));
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool WaitsFor(const ProgramAction& action, int32_t other) {
  return std::binary_search(action.after.begin(), action.after.end(), other);
}

bool WaitsForMark(const ProgramAction& action, int32_t pass) {
  return std::any_of(action.after_marks.begin(), action.after_marks.end(),
                     [&](const PassMark& mark) { return mark.action == pass; });
}

Validation::Validation(const Program& program) : program_(program) {
  by_kind_.assign(static_cast<size_t>(kLastActionKind) + 1,
                  std::vector<std::vector<Cell>>(program.stages.size()));
  for (size_t d = 0; d < program.devices.size(); ++d) {
    for (size_t i = 0; i < program.devices[d].body.size(); ++i) {
      const Action& action = program.devices[d].body[i].action;
      by_kind_[static_cast<size_t>(action.kind)][action.stage.index()].push_back(
          {static_cast<int32_t>(d), static_cast<int32_t>(i)});
    }
  }
}

absl::Status Validate(const Program& program, const std::vector<Bytes>& memory_budget) {
  if (absl::Status status = CheckIds(program); !status.ok())
    return absl::FailedPreconditionError(status.message());
  if (HasSections(program)) {
    for (int64_t steps = 1; steps <= kUnrolledSteps; ++steps) {
      const absl::Status status = Validate(Unroll(program, steps), memory_budget);
      if (!status.ok()) return Annotate(status, absl::StrCat("unrolled for ", steps, " steps"));
    }
    return absl::OkStatus();
  }
  const Validation v(program);
  RETURN_IF_ERROR(CheckPlaces(v));
  RETURN_IF_ERROR(CheckSamples(v));
  RETURN_IF_ERROR(CheckTransfers(v));
  RETURN_IF_ERROR(program.asynchronous ? CheckAsynchronousUpdates(v) : CheckUpdates(v));
  RETURN_IF_ERROR(CheckMemoryReturns(v));
  RETURN_IF_ERROR(CheckNoDeadlock(v));
  return CheckPeaks(v, memory_budget);
}

Bytes PeakMemory(const DeviceProgram& device) {
  if (device.prologue.empty()) return Extremes(device).peak;
  return Extremes(Unroll(device, /*mini_batch=*/0, kUnrolledSteps)).peak;
}

std::vector<Bytes> PeakMemories(const Program& program) {
  std::vector<Bytes> peaks;
  absl::flat_hash_map<size_t, size_t> first;  // By hash of its work: a device's row.
  for (const DeviceProgram& device : program.devices) {
    const size_t row = peaks.size();
    const size_t other =
        device.prologue.empty() ? first.try_emplace(HashOfWork(device), row).first->second : row;
    if (other < row && WorkAlike(program.devices[other], device)) {
      peaks.push_back(peaks[other] - program.devices[other].resident + device.resident);
    } else {
      peaks.push_back(PeakMemory(device));
    }
  }
  return peaks;
}

}  // namespace stagewright
