// `stagewright submit`.
#pragma once

#include <CLI/CLI.hpp>

#include "clients/cli/globals.h"

namespace stagewright::cli {

// Adds submit. `globals` outlives the app; its exit code is set once a command has run.
void AddSubmitCommand(CLI::App& app, Globals& globals);

}  // namespace stagewright::cli
