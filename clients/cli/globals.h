// What all commands share: the flags of the program itself, and the exit code that a command sets
// when it has run.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace stagewright::cli {

struct Globals {
  std::string planner_address = "127.0.0.1:7070";
  std::string output = "table";  // "table" or "json".
  int exit_code = 0;

  bool json() const { return output == "json"; }
};

// -o table|json for a command whose result has both forms.
void AddOutputOption(CLI::App& command, Globals& globals);

}  // namespace stagewright::cli
