// `stagewright jobs logs`.
#pragma once

#include <CLI/CLI.hpp>

#include "clients/cli/globals.h"

namespace stagewright::cli {

// Adds logs, below the command `jobs`. `globals` outlives the app; its exit code is set once a
// command has run.
void AddLogsCommand(CLI::App& jobs, Globals& globals);

}  // namespace stagewright::cli
