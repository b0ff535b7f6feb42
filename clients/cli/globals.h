// What all commands share: the flags of the program itself, and the exit code that a command sets
// when it has run.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "common/channel/channel.h"

namespace stagewright::cli {

struct Globals {
  std::string planner_address = "127.0.0.1:7070";
  ChannelSecurity security;      // How the planner is spoken to.
  std::string artifacts;         // Where artifacts are; empty: nowhere.
  std::string output = "table";  // "table" or "json".
  int exit_code = 0;

  bool json() const { return output == "json"; }
};

// --tls-cert and the like.
void AddSecurityOptions(CLI::App& app, ChannelSecurity& security);

// -o table|json for a command whose result has both forms.
void AddOutputOption(CLI::App& command, Globals& globals);

}  // namespace stagewright::cli
