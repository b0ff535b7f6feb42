#include "common/config/config_command.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/one_line.h"

namespace stagewright {
namespace {

std::string Line(const Setting& setting) {
  YAML::Emitter line;
  line << YAML::Flow << YAML::BeginMap << YAML::Key << setting.key << YAML::Value;
  if (setting.list && !(setting.values.size() == 1 && setting.values[0].empty())) {
    line << YAML::BeginSeq;
    for (const std::string& value : setting.values) line << ShownValue(value);
    line << YAML::EndSeq;
  } else if (setting.list) {
    line << YAML::BeginSeq << YAML::EndSeq;
  } else {
    line << ShownValue(setting.values[0]);
  }
  line << YAML::EndMap;
  const std::string text = line.c_str();
  return text.substr(1, text.size() - 2);  // Without the braces.
}

using Check = std::function<absl::Status()>;

int Complain(const Settings& settings, const std::string& program, const Check& check) {
  std::vector<std::string> problems = settings.Problems();
  if (problems.empty()) {
    if (const absl::Status wrong = check(); !wrong.ok())
      problems.emplace_back(OneLine(wrong).message());
  }
  for (const std::string& warning : settings.Warnings())
    std::cerr << program << ": warning: " << warning << std::endl;
  for (const std::string& problem : problems) std::cerr << program << ": " << problem << std::endl;
  return problems.empty() ? 0 : 1;
}

int Show(const Settings& settings, const std::string& program, const Check& check) {
  const std::vector<Setting> all = settings.List();
  size_t width = 0;
  for (const Setting& setting : all) width = std::max(width, Line(setting).size());
  for (const Setting& setting : all) {
    const std::string line = Line(setting);
    const std::string origin = setting.origin == "environment"
                                   ? absl::StrCat("environment ", setting.variable)
                               : setting.origin == "flag" ? absl::StrCat("flag --", setting.key)
                                                          : setting.origin;
    std::cout << line << std::string(width - line.size(), ' ') << "  # " << origin << "\n";
  }
  return Complain(settings, program, check);
}

int Validate(const Settings& settings, const std::string& program, const Check& check) {
  if (const int wrong = Complain(settings, program, check); wrong != 0) return wrong;
  std::cout << (settings.path().empty() ? "no configuration file" : settings.path())
            << ": flags, environment and file are good\n";
  return 0;
}

int PrintReference(const Settings& settings) {
  const auto cell = [](const std::string& text) {
    return absl::StrReplaceAll(text, {{"|", "\\|"}});
  };
  std::cout << "| setting | variable | default | |\n|---|---|---|---|\n";
  for (const Setting& setting : settings.List()) {
    const std::string fallback =
        setting.fallback.empty() ? "" : absl::StrCat("`", cell(setting.fallback), "`");
    std::cout << "| `" << setting.key << "` | `" << setting.variable << "` | " << fallback
              << (fallback.empty() ? "| " : " | ") << cell(setting.help) << " |\n";
  }
  return 0;
}

}  // namespace

ConfigCommand AddConfigCommand(CLI::App& app, const Settings& settings, const std::string& program,
                               const std::function<absl::Status()>& check) {
  CLI::App* command =
      app.add_subcommand("config", "what this program is told: flags, environment and file");
  command->require_subcommand(1);
  const CLI::App* show = command->add_subcommand("show", "all settings and where they come from");
  const CLI::App* validate =
      command->add_subcommand("validate", "says what is wrong with flags, environment and file");
  const CLI::App* reference = command->add_subcommand("reference", "all settings as a table");
  return {command, [=] { return show->parsed() || validate->parsed() || reference->parsed(); },
          [=, &settings] {
            if (show->parsed()) return Show(settings, program, check);
            return validate->parsed() ? Validate(settings, program, check)
                                      : PrintReference(settings);
          }};
}

}  // namespace stagewright
