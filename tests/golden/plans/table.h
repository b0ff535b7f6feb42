// A table of golden answers: a row per case, a column per planner or kind of text.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace stagewright::golden {

// Cells by column. What was not asked has no cell.
using Cells = std::map<std::string, std::string>;

struct Table {
  std::vector<std::string> columns;
  std::map<std::string, Cells> rows;
};

// Aligned columns, a line per row, "-" for what has no cell; the first line has the names of the
// columns.
std::string ToText(const Table& table);
// The inverse. INVALID_ARGUMENT names the line.
absl::StatusOr<Table> ParseTable(const std::string& text);

}  // namespace stagewright::golden
