// Holds what planners answer and what strategies are lowered to against the tables in this folder,
// or writes them anew.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/text_file.h"
#include "tests/golden/plans/file_cases.h"
#include "tests/golden/plans/program_cases.h"
#include "tests/golden/plans/random_cases.h"
#include "tests/golden/plans/report.h"
#include "tests/support/checkout/source_path.h"

namespace stagewright::golden {
namespace {

enum ExitCode { kSame = 0, kDifferent = 1, kFailed = 2, kSkipped = 77 };

const std::vector<std::pair<std::string, Cases (*)()>> kTables = {
    {"examples", ExampleCases},
    {"profiles", ProfileCases},
    {"programs", ProgramCases},
    {"random", RandomCases},
};

struct Flags {
  std::vector<std::string> tables;
  bool write = false;
  bool long_form = false;
  bool times = false;
};

// The table in the file; without rows where there is none yet.
absl::StatusOr<Table> ReadTable(const std::string& path) {
  const auto text = ReadTextFile(path);
  if (absl::IsNotFound(text.status())) return Table{};
  RETURN_IF_ERROR(text.status());
  auto table = ParseTable(*text);
  if (!table.ok()) return Annotate(table.status(), path);
  return table;
}

absl::StatusOr<ExitCode> RunTable(const std::string& name, const Cases& cases, const Flags& flags) {
  const std::string path = testing::SourcePath(absl::StrCat("tests/golden/plans/", name, ".txt"));
  ASSIGN_OR_RETURN(const Table golden, ReadTable(path));
  ASSIGN_OR_RETURN(
      const Report report,
      Compare(cases, golden, flags.long_form ? Form::kLong : Form::kShort, std::cout, flags.times));
  std::cout << name << ": " << report.checked << " answers asked, " << report.differences
            << " differ, " << report.unchecked << " of the table not checked" << std::endl;
  if (flags.write) {
    std::ofstream(path) << ToText(report.asked);
    return kSame;
  }
  if (report.differences > 0) return kDifferent;
  return cases.absent.empty() ? kSame : kSkipped;
}

// The worst of the tables asked for.
int Run(const Flags& flags) {
  int worst = kSame;
  for (const auto& [name, cases] : kTables) {
    if (!flags.tables.empty() &&
        std::find(flags.tables.begin(), flags.tables.end(), name) == flags.tables.end()) {
      continue;
    }
    const auto code = RunTable(name, cases(), flags);
    if (!code.ok()) std::cerr << name << ": " << code.status() << "\n";
    const int ended = code.ok() ? *code : kFailed;
    if (worst == kSame || worst == kSkipped) worst = std::max(worst, ended);
  }
  return worst;
}

}  // namespace
}  // namespace stagewright::golden

int main(int argc, char** argv) {
  CLI::App app("Compares plans, programs and orders with the tables in tests/golden/plans");
  stagewright::golden::Flags flags;
  std::vector<std::string> names;
  for (const auto& table : stagewright::golden::kTables) names.push_back(table.first);
  app.add_option("tables", flags.tables, "which tables (default: all)")
      ->check(CLI::IsMember(names));
  app.add_flag("--write", flags.write, "write the tables anew instead of failing");
  app.add_flag("--long", flags.long_form, "ask what takes minutes, too");
  app.add_flag("--times", flags.times, "print the processor time of each row");
  CLI11_PARSE(app, argc, argv);
  return stagewright::golden::Run(flags);
}
