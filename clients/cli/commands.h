// One function per family of commands: each adds its sub-commands to the app and sets `exit_code`
// when one has run.
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

void AddPlanCommands(CLI::App& app, Globals& globals);    // plan, plan show
void AddGraphCommands(CLI::App& app, Globals& globals);   // graph show, graph import
void AddExplainCommand(CLI::App& app, Globals& globals);  // explain
// submit, jobs, watch, cancel, workers, trace
void AddJobCommands(CLI::App& app, Globals& globals);
void AddSubmitCommand(CLI::App& app, Globals& globals);   // submit
void AddUpCommand(CLI::App& app, Globals& globals);       // up
void AddLossesCommand(CLI::App& jobs, Globals& globals);  // jobs losses

// -o table|json for a command whose result has both forms.
void AddOutputOption(CLI::App& command, Globals& globals);

}  // namespace stagewright::cli
