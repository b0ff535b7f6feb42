// `stagewright up`: a planner and workers on this machine, until a signal or until a command
// has run.
#pragma once

#include <CLI/CLI.hpp>

#include "clients/cli/globals.h"

namespace stagewright::cli {

// Adds up. `globals` outlives the app; its exit code is set once a command has run.
void AddUpCommand(CLI::App& app, Globals& globals);

}  // namespace stagewright::cli
