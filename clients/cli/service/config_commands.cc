#include "clients/cli/service/config_commands.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>

#include "clients/cli/exit_code.h"
#include "clients/cli/files/write_file.h"
#include "common/artifacts/store/artifact_store.h"
#include "common/base/nearest.h"
#include "common/base/text_file.h"
#include "common/channel/channel.h"
#include "common/config/config_command.h"

namespace stagewright::cli {
namespace {

constexpr char kContext[] = "context";

// The context that holds; empty: none.
std::string Present(const Settings& settings) {
  for (const Setting& setting : settings.List())
    if (setting.key == kContext) return setting.values[0];
  return "";
}

int ListContexts(const Settings& settings) {
  const std::string present = Present(settings);
  for (const ConfigContext& context : settings.file().contexts)
    std::cout << (context.name == present ? "* " : "  ") << context.name << "\n";
  const absl::Status wrong = settings.Check();
  return wrong.ok() ? kSuccess : Report(wrong);
}

absl::Status Use(const Settings& settings, const std::string& name) {
  const std::string& path = settings.path();
  if (path.empty()) {
    const std::string usual = UserConfigFile();
    return absl::NotFoundError(absl::StrCat(
        "there is no configuration file: ",
        usual.empty() ? "name one by --config"
                      : absl::StrCat("write contexts into ", usual, ", or name one by --config")));
  }
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  ASSIGN_OR_RETURN(const ConfigFile file, ParseConfig(path, text, /*with_contexts=*/true));
  std::vector<std::string> known;
  for (const ConfigContext& context : file.contexts) known.push_back(context.name);
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    const std::string nearest = Nearest(name, known);
    return absl::NotFoundError(absl::StrCat(path, " has no context \"", name, "\"",
                                            nearest.empty() ? "" : "; did you mean \"", nearest,
                                            nearest.empty() ? "" : "\"?"));
  }
  ASSIGN_OR_RETURN(const std::string changed, WithEntry(path, text, kContext, name));
  RETURN_IF_ERROR(WriteFile(path, changed));
  std::cout << name << " holds from now on (" << path << ")\n";
  return absl::OkStatus();
}

// What explains and completes commands helps to write settings, whatever is wrong with them; config
// says itself what that is.
bool UsesNoSettings(const CLI::App& app) {
  return app.got_subcommand("config") || app.got_subcommand("help") ||
         app.got_subcommand("completion");
}

}  // namespace

std::string UserConfigFile() {
  const char* folder = std::getenv("XDG_CONFIG_HOME");
  if (folder != nullptr && *folder != '\0') return absl::StrCat(folder, "/stagewright/config.yaml");
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return "";
  return absl::StrCat(home, "/.config/stagewright/config.yaml");
}

void AddConfigCommands(CLI::App& app, Globals& globals, const Settings& settings) {
  const ConfigCommand config = AddConfigCommand(app, settings, "stagewright", [&globals] {
    RETURN_IF_ERROR(CheckChannel("--planner-address", globals.planner_address, globals.security));
    if (globals.artifacts.empty()) return absl::OkStatus();
    return Annotate(OpenArtifactStore(globals.artifacts).status(), "--artifacts");
  });
  config.command->add_subcommand("contexts", "lists them; * marks the one that holds")
      ->callback([&] { globals.exit_code = ListContexts(settings); });
  auto name = std::make_shared<std::string>();
  CLI::App* use = config.command->add_subcommand("use-context", "has a context hold from now on");
  use->add_option("name", *name, "one of the configuration file")->required();
  use->callback([name, &globals, &settings] {
    const absl::Status status = Use(settings, *name);
    globals.exit_code = status.ok() ? kSuccess : Report(status);
  });
  config.command->callback([config, &globals] {
    if (config.chosen()) globals.exit_code = config.run();
  });
  // Before the command's own callback.
  app.parse_complete_callback([&app, &settings] {
    if (UsesNoSettings(app)) return;
    const absl::Status wrong = settings.Check();
    if (!wrong.ok()) throw CLI::ConfigError(std::string(wrong.message()));
    for (const std::string& warning : settings.Warnings())
      std::cerr << "stagewright: warning: " << warning << std::endl;
  });
}

}  // namespace stagewright::cli
