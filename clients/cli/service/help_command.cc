#include "clients/cli/service/help_command.h"

#include <iostream>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/nearest.h"

namespace stagewright::cli {
namespace {

void Show(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  std::string name = app.get_name();
  for (const std::string& word : words) {
    const auto found = command->get_subcommands(
        [&](const CLI::App* next) { return !next->get_name().empty() && next->check_name(word); });
    if (found.empty()) {
      const std::string unknown = UnknownCommand(word, *command);
      throw CLI::ValidationError(
          unknown.empty() ? absl::StrCat(command->get_name(), " has no commands") : unknown);
    }
    command = found.front();
    absl::StrAppend(&name, " ", command->get_name());
  }
  // Not help(), which is that of the command that was parsed: of this one.
  std::cout << command->get_formatter()->make_help(command, name, CLI::AppFormatMode::Normal);
}

}  // namespace

std::string UnknownCommand(const std::string& word, const CLI::App& command) {
  std::vector<std::string> known;
  for (const CLI::App* next : command.get_subcommands([](const CLI::App*) { return true; }))
    known.push_back(next->get_name());
  if (known.empty()) return "";
  const std::string nearest = Nearest(word, known);
  return absl::StrCat("unknown command \"", word, "\"",
                      nearest.empty() ? "" : absl::StrCat("; did you mean \"", nearest, "\"?"));
}

void AddHelpCommand(CLI::App& app) {
  auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* help = app.add_subcommand("help", "what a command does, as its --help says");
  help->add_option("command", *words, "the command: jobs list; without one, all commands");
  help->callback([words, &app] { Show(app, *words); });
}

}  // namespace stagewright::cli
