// `stagewright jobs`, `watch`, `cancel`, `workers`, `trace`.
#pragma once

#include <CLI/CLI.hpp>

#include "clients/cli/globals.h"

namespace stagewright::cli {

// Adds jobs with its losses, watch, cancel, workers and trace. `globals` outlives the app; its exit
// code is set once a command has run.
void AddJobCommands(CLI::App& app, Globals& globals);

}  // namespace stagewright::cli
