// `stagewright plan`, `stagewright plan show`.
#pragma once

#include <CLI/CLI.hpp>

#include "clients/cli/globals.h"

namespace stagewright::cli {

// Adds plan and plan show. `globals` outlives the app; its exit code is set once a command has run.
void AddPlanCommands(CLI::App& app, Globals& globals);

}  // namespace stagewright::cli
