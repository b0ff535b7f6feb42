// `stagewright jobs replan`: a better plan for a running job, by what its steps take.
#pragma once

#include <CLI/CLI.hpp>

#include "clients/cli/globals.h"

namespace stagewright::cli {

// Adds it to the command `jobs`.
void AddReplanCommand(CLI::App& jobs, Globals& globals);

}  // namespace stagewright::cli
