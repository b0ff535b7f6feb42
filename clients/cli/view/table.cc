#include "clients/cli/view/table.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace stagewright::cli {
namespace {

// Columns a UTF-8 string takes: one per code point.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

}  // namespace

Table::Table(std::vector<std::string> header) {
  for (std::string& cell : header) {
    right_.push_back(!cell.empty() && cell[0] == '>');
    if (right_.back()) cell.erase(0, 1);
  }
  rows_.push_back(std::move(header));
}

void Table::Add(std::vector<std::string> row) {
  CHECK(row.size() == right_.size());
  rows_.push_back(std::move(row));
}

std::string Table::ToString() const {
  std::vector<size_t> widths(right_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      const std::string padding(widths[i] - Width(row[i]), ' ');
      line += right_[i] ? padding + row[i] : row[i] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace stagewright::cli
