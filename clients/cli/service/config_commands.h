// `stagewright config`: what this program is told, and by which name it knows several planners.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "clients/cli/globals.h"
#include "common/config/settings.h"

namespace stagewright::cli {

// $XDG_CONFIG_HOME/stagewright/config.yaml, by default that of ~/.config; empty without a home.
std::string UserConfigFile();

// Adds `config` with `contexts` and `use-context` to what every program has. Other commands do not
// begin while something is wrong with the settings: parsing throws CLI::ConfigError. Warnings
// go to standard error. `settings` outlives the app's parsing.
void AddConfigCommands(CLI::App& app, Globals& globals, const Settings& settings);

}  // namespace stagewright::cli
