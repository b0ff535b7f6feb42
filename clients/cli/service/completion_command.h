// `stagewright completion bash|zsh`: a script that completes commands and flags.
#pragma once

#include <CLI/CLI.hpp>

#include "clients/cli/globals.h"

namespace stagewright::cli {

// Completes all commands of `app`, those that are added later, too. The app outlives its parsing.
void AddCompletionCommand(CLI::App& app, Globals& globals);

}  // namespace stagewright::cli
