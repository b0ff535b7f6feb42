#include "common/program/grid.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

constexpr int32_t kCellsAround = 4;

struct Row {
  std::string name;
  std::vector<std::string> cells;
};

Row MakeRow(const DeviceProgram& device, int32_t marked_action, int32_t& marked_column) {
  Row row{absl::StrCat("device ", device.device.value()), {}};
  for (size_t i = 0; i < device.body.size(); ++i) {
    const Action& action = device.body[i].action;
    if (static_cast<int32_t>(i) == marked_action) {
      marked_column = static_cast<int32_t>(row.cells.size());
      row.cells.push_back(absl::StrCat(">", ToString(action), "<"));
    } else if (IsCompute(action.kind)) {
      row.cells.push_back(ToString(action));
    }
  }
  return row;
}

void Pad(std::string& text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
}

}  // namespace

std::string Grid(const Program& program, int32_t marked_row, int32_t marked_action) {
  std::vector<Row> rows;
  int32_t marked_column = -1;
  for (size_t d = 0; d < program.devices.size(); ++d) {
    const bool marked = static_cast<int32_t>(d) == marked_row;
    rows.push_back(MakeRow(program.devices[d], marked ? marked_action : -1, marked_column));
  }
  size_t name_width = 0;
  size_t last = 0;
  for (const Row& row : rows) {
    name_width = std::max(name_width, row.name.size());
    last = std::max(last, row.cells.size());
  }
  size_t first = 0;
  if (marked_column >= 0) {
    first = static_cast<size_t>(std::max(marked_column - kCellsAround, 0));
    last = std::min(last, static_cast<size_t>(marked_column + kCellsAround + 1));
  }
  std::vector<std::string> lines;
  for (const Row& row : rows) {
    Pad(lines.emplace_back(row.name), name_width);
    lines.back() += first > 0 ? " | ..." : " |";
  }
  for (size_t c = first; c < last; ++c) {
    size_t width = 0;
    for (const Row& row : rows)
      width = std::max(width, c < row.cells.size() ? row.cells[c].size() : 0);
    for (size_t d = 0; d < rows.size(); ++d) {
      std::string cell = c < rows[d].cells.size() ? rows[d].cells[c] : "";
      Pad(cell, width);
      absl::StrAppend(&lines[d], " ", cell);
    }
  }
  std::string text;
  for (size_t d = 0; d < rows.size(); ++d) {
    if (last < rows[d].cells.size()) lines[d] += " ...";
    lines[d].erase(lines[d].find_last_not_of(' ') + 1);
    absl::StrAppend(&text, lines[d], "\n");
  }
  return text;
}

}  // namespace stagewright
