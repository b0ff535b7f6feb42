// `stagewright jobs losses`.
#pragma once

#include <CLI/CLI.hpp>

#include "clients/cli/globals.h"

namespace stagewright::cli {

// Adds losses, below the command `jobs`. `globals` outlives the app; its exit code is set once a
// command has run.
void AddLossesCommand(CLI::App& jobs, Globals& globals);

}  // namespace stagewright::cli
