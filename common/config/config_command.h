// `config` of a program: what it is told and by whom, before it does anything.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "common/base/status.h"
#include "common/config/settings.h"

namespace stagewright {

struct ConfigCommand {
  CLI::App* command = nullptr;  // A program may add to its commands.
  // Whether the parsed command line is one of those below.
  std::function<bool()> chosen;
  // Does it; the exit status: 0, or 1 with a line on standard error for everything that is wrong.
  std::function<int()> run;
};

// `config show` prints all settings as a file that could be read, with the origin of each;
// `config validate` says what is wrong, and warns of what may be; `config reference` prints a table
// for documents. `settings` and `app` outlive the result. `program` begins lines on standard error.
// `check` says what is wrong with settings that are good one by one, as the program's start does,
// and looks at nothing that they name.
ConfigCommand AddConfigCommand(CLI::App& app, const Settings& settings, const std::string& program,
                               const std::function<absl::Status()>& check);

}  // namespace stagewright
