// `stagewright-planner state`: what operators do with the file that a planner keeps its state in.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace stagewright {

struct StateCommand {
  // Whether the command line, once parsed, is this command's.
  std::function<bool()> chosen;
  // Does it; the exit status of the program: 0, or 1 with one line on standard error or, from
  // `check`, with what is damaged on standard output.
  std::function<int()> run;
};

// Adds the command with its sub-commands to those of `app`, which outlives the result.
StateCommand AddStateCommand(CLI::App& app);

}  // namespace stagewright
