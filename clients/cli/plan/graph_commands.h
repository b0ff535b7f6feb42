// `stagewright graph show`, `stagewright graph import`.
#pragma once

#include <CLI/CLI.hpp>

#include "clients/cli/globals.h"

namespace stagewright::cli {

// Adds graph show and graph import. `globals` outlives the app; its exit code is set once a command
// has run.
void AddGraphCommands(CLI::App& app, Globals& globals);

}  // namespace stagewright::cli
