// What the parts of Validate() share: a program's actions by kind and stage, and how a broken rule
// is reported.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/program/grid.h"
#include "common/program/program.h"

namespace stagewright {

// Where an action stands: row in Program::devices, index in its body.
struct Cell {
  int32_t row = 0;
  int32_t action = 0;
};

// Whether an action waits for the end of another or for one of its marks.
bool WaitsFor(const ProgramAction& action, int32_t other);
bool WaitsForMark(const ProgramAction& action, int32_t pass);

class Validation {
 public:
  // REQUIRES: CheckIds.
  explicit Validation(const Program& program);

  const Program& program() const { return program_; }
  const std::vector<ProgramAction>& Body(int32_t row) const { return program_.devices[row].body; }
  const ProgramAction& At(Cell cell) const { return Body(cell.row)[cell.action]; }
  DeviceId DeviceOf(Cell cell) const { return program_.devices[cell.row].device; }
  // Actions of one kind, by stage; in list order of each row.
  const std::vector<std::vector<Cell>>& Of(ActionKind kind) const {
    return by_kind_[static_cast<size_t>(kind)];
  }

  // FAILED_PRECONDITION that names device and action, with the grid around it.
  template <typename... Args>
  absl::Status Broken(Cell cell, const Args&... rule) const {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", DeviceOf(cell).value(), ", ", ToString(At(cell).action), ": ",
                     absl::StrCat(rule...), "\n", Grid(program_, cell.row, cell.action)));
  }
  // Where no action is to blame, as when one is missing.
  template <typename... Args>
  absl::Status BrokenAnywhere(const Args&... rule) const {
    return absl::FailedPreconditionError(absl::StrCat(absl::StrCat(rule...), "\n", Grid(program_)));
  }

 private:
  const Program& program_;
  std::vector<std::vector<std::vector<Cell>>> by_kind_;
};

}  // namespace stagewright
