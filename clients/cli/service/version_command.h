// `stagewright version`: of this program and of the planner.
#pragma once

#include <CLI/CLI.hpp>

#include "clients/cli/globals.h"

namespace stagewright::cli {

void AddVersionCommand(CLI::App& app, Globals& globals);

}  // namespace stagewright::cli
