#include "common/config/command_line.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/json_object.h"
#include "common/config/number_checks.h"

namespace stagewright {
namespace {

// What is wrong, and where help is.
std::string UsageError(const CommandLine& line, const CLI::App& app, std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  const CLI::App* chosen = &app;
  std::string command = line.program;
  while (!chosen->get_subcommands().empty()) {
    chosen = chosen->get_subcommands().front();
    absl::StrAppend(&command, " ", chosen->get_name());
  }
  const std::string unknown = line.unknown == nullptr ? "" : line.unknown(app, *chosen);
  return absl::StrCat(line.program, ": ", unknown.empty() ? message : unknown, " (", command,
                      " --help)\n");
}

// Texts travel as UTF-8. 0: all words are.
int FindOtherThanUtf8(const CommandLine& line) {
  for (int i = 1; i < line.argc; ++i)
    if (FindInvalidUtf8(line.argv[i]) != std::string_view::npos) return i;
  return 0;
}

}  // namespace

std::optional<int> ParseCommandLine(CLI::App& app, Settings& settings, const CommandLine& line) {
  if (const int word = FindOtherThanUtf8(line); word > 0) {
    std::cerr << line.program << ": word " << word
              << " of the command line is no UTF-8: " << absl::CHexEscape(line.argv[word])
              << std::endl;
    return kWrongUsage;
  }
  app.failure_message([&line](const CLI::App* whole, const CLI::Error& error) {
    return UsageError(line, *whole, error.what());
  });
  RefuseWhatDoesNotFit(app);
  settings.Load(line.argc, line.argv);
  try {
    app.parse(line.argc, line.argv);
  } catch (const CLI::ParseError& error) {
    return AfterOutput(line.program, app.exit(error) == 0 ? 0 : kWrongUsage);
  }
  return std::nullopt;
}

int AfterOutput(const std::string& program, int status) {
  if (std::cout.flush()) return status;
  std::cerr << program << ": cannot write to standard output: " << std::strerror(errno)
            << std::endl;
  return status == 0 ? 1 : status;
}

}  // namespace stagewright
