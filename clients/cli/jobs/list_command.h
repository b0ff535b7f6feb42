// `stagewright jobs` and `jobs list`: which jobs there are.
#pragma once

#include <CLI/CLI.hpp>

#include "clients/cli/globals.h"

namespace stagewright::cli {

// The flags of the list and `list` itself, on the command `jobs`.
void AddListCommand(CLI::App& jobs, Globals& globals);

}  // namespace stagewright::cli
