// `stagewright-planner state`: what operators do with the file that a planner keeps its state in.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace stagewright {

struct StateCommand {
  // Whether the command line, once parsed, is this command's.
  std::function<bool()> chosen;
  // Does it, with the state that the command line names or else with that of the planner, which is
  // empty if no file keeps it. The exit status of the program: 0, or 1 with one line on standard
  // error or, from `check`, with what is damaged on standard output.
  std::function<int(const std::string& planners)> run;
};

// Adds the command with its sub-commands to those of `app`, which outlives the result.
StateCommand AddStateCommand(CLI::App& app);

}  // namespace stagewright
