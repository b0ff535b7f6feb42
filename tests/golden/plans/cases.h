// What is asked for each table. Cases are always the same, and their answers depend on no clock: no
// search has a deadline.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "tests/golden/plans/table.h"

namespace stagewright::golden {

// How much of a case is asked: what takes seconds only in the long form.
enum class Form { kShort, kLong };

struct Case {
  std::string name;  // Unique in its table, without spaces.
  std::function<absl::StatusOr<Cells>(Form)> ask;
};

struct Cases {
  std::vector<std::string> columns;
  std::vector<Case> cases;
  std::string absent;  // Why there are fewer cases than the table has; empty if there are not.
};

}  // namespace stagewright::golden
