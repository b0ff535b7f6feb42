#include "tests/golden/plans/report.h"

#include <ctime>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/golden/plans/cell.h"

namespace stagewright::golden {
namespace {

constexpr char kNothing[] = "nothing";

// " (+1.25 %)" where both have a time; the same time to the nanosecond is said.
std::string Change(const std::string& was, const std::string& is) {
  const auto before = TimeOf(was);
  const auto after = TimeOf(is);
  if (!before || !after || *before <= 0) return "";
  if (*before == *after) return " (as fast)";
  return absl::StrFormat(
      " (%+.2f %%)", 100.0 * static_cast<double>(*after - *before) / static_cast<double>(*before));
}

std::string CellOr(const Cells& cells, const std::string& column) {
  const auto cell = cells.find(column);
  return cell == cells.end() ? kNothing : cell->second;
}

void CompareRow(const std::string& row, const Cells& was, const Cells& is, Report& report,
                std::ostream& out) {
  for (const auto& [column, now] : is) {
    ++report.checked;
    const std::string before = CellOr(was, column);
    if (before == now) continue;
    ++report.differences;
    out << absl::StrFormat("%-40s %-13s was %-28s is %s%s\n", row, column, before, now,
                           Change(before, now));
  }
  for (const auto& [column, before] : was) report.unchecked += is.count(column) == 0;
}

// Rows of the table that no case asks: gone, or not checked because what they need is absent.
void CompareRest(const Cases& cases, const Table& golden, const std::set<std::string>& asked,
                 Report& report, std::ostream& out) {
  std::vector<std::string> rest;
  for (const auto& [row, cells] : golden.rows) {
    if (asked.count(row) > 0) continue;
    rest.push_back(row);
    report.unchecked += static_cast<int>(cells.size());
  }
  if (rest.empty()) return;
  if (cases.absent.empty()) {
    report.differences += static_cast<int>(rest.size());
    out << "rows without a case: " << absl::StrJoin(rest, " ") << "\n";
  } else {
    out << cases.absent << "; not checked: " << absl::StrJoin(rest, " ") << "\n";
  }
}

}  // namespace

absl::StatusOr<Report> Compare(const Cases& cases, const Table& golden, Form form,
                               std::ostream& out, bool times) {
  Report report;
  report.asked = golden;
  report.asked.columns = cases.columns;
  std::set<std::string> asked;
  for (const Case& each : cases.cases) {
    const std::clock_t start = std::clock();
    auto cells = each.ask(form);
    if (!cells.ok()) return Annotate(cells.status(), each.name);
    const double took = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    if (times) out << absl::StrFormat("%7.3f s %s\n", took, each.name) << std::flush;
    asked.insert(each.name);
    Cells& row = report.asked.rows[each.name];
    CompareRow(each.name, row, *cells, report, out);
    for (auto& [column, cell] : *cells) row[column] = std::move(cell);
  }
  CompareRest(cases, golden, asked, report, out);
  return report;
}

}  // namespace stagewright::golden
