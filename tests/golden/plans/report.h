// Asks the cases of a table and says what differs from what stands in it.
#pragma once

#include <ostream>
#include <string>

#include "tests/golden/plans/cases.h"
#include "tests/golden/plans/table.h"

namespace stagewright::golden {

struct Report {
  Table asked;          // The table with every cell that was asked as it is now.
  int differences = 0;  // Cells and rows, each printed.
  int checked = 0;      // Cells that were asked.
  int unchecked = 0;    // Cells of the table that were not.
};

// Prints the row, column, time before and after of each difference, every row that was not checked
// at all, and, with `times`, the processor time of each row. Errors name the case.
absl::StatusOr<Report> Compare(const Cases& cases, const Table& golden, Form form,
                               std::ostream& out, bool times);

}  // namespace stagewright::golden
