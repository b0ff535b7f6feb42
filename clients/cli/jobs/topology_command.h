// `stagewright topology measure`.
#pragma once

#include <CLI/CLI.hpp>

#include "clients/cli/globals.h"

namespace stagewright::cli {

// `globals` outlives the app; its exit code is set once a command has run.
void AddTopologyCommand(CLI::App& app, Globals& globals);

}  // namespace stagewright::cli
