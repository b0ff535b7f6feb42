// How the words of a command line are read, alike by all programs.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

#include "common/config/settings.h"

namespace stagewright {

// What a program ends with whose words are wrong.
inline constexpr int kWrongUsage = 2;

struct CommandLine {
  std::string program;  // As it is called.
  int argc = 0;
  char** argv = nullptr;
  // What is wrong with the words that `chosen`, the innermost command of `app`, does not know, or
  // nothing where what CLI11 says will do. May be null.
  std::function<std::string(const CLI::App& app, const CLI::App& chosen)> unknown = nullptr;
};

// Gives the flags of the app what file, environment and command line say. Nothing, and the program
// goes on; or what it ends with: 0 after --help and --version, if all of that was written, or
// kWrongUsage after one line on stderr. Words must be UTF-8, whole numbers such as fit.
std::optional<int> ParseCommandLine(CLI::App& app, Settings& settings, const CommandLine& line);

// At the end of a program that has written to stdout: `status`, or 1 in place of success and a line
// on stderr where not all of it could be written. Whoever redirects output must hear of it.
int AfterOutput(const std::string& program, int status);

}  // namespace stagewright
