#include "tests/golden/plans/table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace stagewright::golden {
namespace {

constexpr char kNoCell[] = "-";

using Line = std::vector<std::string>;

std::string Aligned(const std::vector<Line>& lines) {
  std::vector<size_t> widths;
  for (const Line& line : lines) {
    widths.resize(std::max(widths.size(), line.size()));
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string out;
  for (const Line& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      const size_t padding = i + 1 < line.size() ? widths[i] - line[i].size() + 1 : 0;
      absl::StrAppend(&out, line[i], std::string(padding, ' '));
    }
    out += '\n';
  }
  return out;
}

}  // namespace

std::string ToText(const Table& table) {
  std::vector<Line> lines = {{"case"}};
  lines[0].insert(lines[0].end(), table.columns.begin(), table.columns.end());
  for (const auto& [name, cells] : table.rows) {
    Line& line = lines.emplace_back(Line{name});
    for (const std::string& column : table.columns) {
      const auto cell = cells.find(column);
      line.push_back(cell == cells.end() ? kNoCell : cell->second);
    }
  }
  return Aligned(lines);
}

absl::StatusOr<Table> ParseTable(const std::string& text) {
  Table table;
  int number = 0;
  for (absl::string_view content : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    Line line = absl::StrSplit(content, ' ', absl::SkipEmpty());
    if (++number == 1) {
      table.columns.assign(line.begin() + 1, line.end());
      continue;
    }
    if (line.size() != table.columns.size() + 1) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": has ", line.size(),
                                                     " entries, the first line ",
                                                     table.columns.size() + 1));
    }
    Cells& cells = table.rows[line[0]];
    for (size_t i = 1; i < line.size(); ++i) {
      if (line[i] != kNoCell) cells[table.columns[i - 1]] = std::move(line[i]);
    }
  }
  return table;
}

}  // namespace stagewright::golden
