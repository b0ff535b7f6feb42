// `stagewright artifacts`: files that jobs name by what is in them.
#pragma once

#include <CLI/CLI.hpp>

#include "clients/cli/globals.h"

namespace stagewright::cli {

void AddArtifactCommands(CLI::App& app, Globals& globals);

}  // namespace stagewright::cli
