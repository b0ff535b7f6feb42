// `config` of a program: what it is told and by whom, before it does anything.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

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
ConfigCommand AddConfigCommand(CLI::App& app, const Settings& settings, const std::string& program);

}  // namespace stagewright
