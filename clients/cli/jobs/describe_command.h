// `stagewright jobs show`, `describe` and `events`: one job, and what happened to it.
#pragma once

#include <CLI/CLI.hpp>

#include "clients/cli/globals.h"

namespace stagewright::cli {

// On the command `jobs`.
void AddDescribeCommands(CLI::App& jobs, Globals& globals);

}  // namespace stagewright::cli
