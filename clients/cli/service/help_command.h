// `stagewright help COMMAND`: what COMMAND --help says.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace stagewright::cli {

// What is wrong with a word where a command of `command` is expected: `unknown command "jbos"; did
// you mean "jobs"?`. Empty where `command` has none.
std::string UnknownCommand(const std::string& word, const CLI::App& command);

void AddHelpCommand(CLI::App& app);

}  // namespace stagewright::cli
