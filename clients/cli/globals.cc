#include "clients/cli/globals.h"

namespace stagewright::cli {

void AddOutputOption(CLI::App& command, Globals& globals) {
  command.add_option("-o,--output", globals.output, "table for people, json for programs")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
}

}  // namespace stagewright::cli
