// `stagewright profile` and `stagewright profiles`.
#pragma once

#include <CLI/CLI.hpp>

#include "clients/cli/globals.h"

namespace stagewright::cli {

// Adds profile, and profiles with its export and import. `globals` outlives the app; its exit code
// is set once a command has run.
void AddProfileCommands(CLI::App& app, Globals& globals);

}  // namespace stagewright::cli
