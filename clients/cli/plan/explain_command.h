// `stagewright explain`: why a saved plan takes as long as it does.
#pragma once

#include <CLI/CLI.hpp>

#include "clients/cli/globals.h"

namespace stagewright::cli {

// Adds explain. `globals` outlives the app; its exit code is set once a command has run.
void AddExplainCommand(CLI::App& app, Globals& globals);

}  // namespace stagewright::cli
