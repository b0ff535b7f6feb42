#include "common/config/settings.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/nearest.h"
#include "common/base/one_line.h"

namespace stagewright {
namespace {

constexpr char kConfig[] = "config";
constexpr char kContext[] = "context";

std::string KeyOf(const CLI::Option& option) { return option.get_lnames().front(); }

std::string VariableOf(const std::string& prefix, const std::string& key) {
  return prefix + absl::AsciiStrToUpper(absl::StrReplaceAll(key, {{"-", "_"}}));
}

// An empty variable counts as one that is not set.
std::string Environment(const std::string& variable) {
  const char* value = std::getenv(variable.c_str());
  return value == nullptr ? "" : value;
}

// As every container has them for every Service: STAGEWRIGHT_PLANNER_PORT_7070_TCP_ADDR.
bool IsOfKubernetes(absl::string_view variable) {
  const std::string words = absl::StrCat(variable, "_");
  return absl::StrContains(words, "_PORT_") || absl::StrContains(words, "_SERVICE_HOST_");
}

bool IsFlag(const CLI::Option& option) { return option.get_items_expected_max() == 0; }

bool IsList(const CLI::Option& option) { return option.get_items_expected_max() > 1; }

// What the library captures as the default of a list without words.
constexpr char kEmptyList[] = "[]";

std::string WhatIsWrong(const CLI::Option& option, const std::vector<std::string>& values,
                        const CLI::Error& error) {
  const std::string value = absl::StrCat("\"", absl::StrJoin(values, ", "), "\"");
  if (error.get_name() != "ConversionError") {
    std::string message = error.what();
    const std::string name = absl::StrCat(option.get_name(), ": ");
    if (message.compare(0, name.size(), name) == 0) message.erase(0, name.size());
    return absl::StrCat(value, ": ", message);
  }
  const std::string type = option.get_type_name();
  return absl::StrCat(value, " is no ",
                      type == "INT" || type == "UINT" ? "whole number" : "number");
}

std::string MeantInstead(const std::string& word, const std::vector<std::string>& known) {
  const std::string nearest = Nearest(word, known);
  return nearest.empty() ? "" : absl::StrCat("; did you mean \"", nearest, "\"?");
}

// What the command line says of file and context, before it is parsed: the values of other flags
// depend on that. What is wrong with it is told when it is parsed.
std::pair<std::string, std::string> NamedOnCommandLine(int argc, const char* const* argv) {
  std::string file, context;
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  app.add_option(absl::StrCat("--", kConfig), file);
  app.add_option(absl::StrCat("--", kContext), context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError&) {
  }
  return {file, context};
}

}  // namespace

Settings::Settings(CLI::App& app, SettingsOptions options)
    : app_(app), options_(std::move(options)) {
  app_.add_option(absl::StrCat("--", kConfig), path_, "YAML file of these settings")
      ->envname(VariableOf(options_.prefix, kConfig))
      ->configurable(false);
  if (!options_.contexts) return;
  app_.add_option(absl::StrCat("--", kContext), named_context_,
                  "which of the file's contexts holds");
}

std::vector<CLI::Option*> Settings::Options() const {
  return app_.get_options([](const CLI::Option* option) {
    return option->get_configurable() && !option->get_lnames().empty();
  });
}

void Settings::Load(int argc, const char* const* argv) {
  for (CLI::Option* option : Options()) {
    if (option->get_envname().empty()) option->envname(VariableOf(options_.prefix, KeyOf(*option)));
    std::string fallback = option->get_default_str();
    if (fallback.empty() && IsFlag(*option)) fallback = "false";
    if (IsList(*option) && fallback == kEmptyList) fallback.clear();
    fallbacks_[option] = std::move(fallback);
    variables_[option] = option->get_envname();
  }
  const auto [file, context] = NamedOnCommandLine(argc, argv);
  ChooseFile(file);
  ReadFile();
  if (options_.contexts) ApplyContext(context);
  ApplyEnvironment();
}

void Settings::ChooseFile(const std::string& named) {
  path_ = named.empty() ? Environment(VariableOf(options_.prefix, kConfig)) : named;
  if (!path_.empty()) return;
  std::error_code error;
  if (!options_.file.empty() && std::filesystem::exists(options_.file, error))
    path_ = options_.file;
}

void Settings::ReadFile() {
  if (path_.empty()) return;
  auto file = ReadConfigFile(path_, options_.contexts);
  if (!file.ok()) {
    problems_.push_back(std::string(file.status().message()));
    return;
  }
  file_ = *std::move(file);
  CheckKeys(file_.entries);
  for (const ConfigContext& context : file_.contexts) {
    CheckKeys(context.entries);
    for (const ConfigEntry& entry : context.entries) {
      if (entry.key != kContext) continue;
      problems_.push_back(absl::StrCat(path_, ":", entry.line, ": the context \"", context.name,
                                       "\" cannot choose another one: \"", kContext,
                                       "\" belongs outside of \"", kContextsKey, "\""));
    }
  }
  ApplyEntries(file_.entries);
}

void Settings::CheckKeys(const std::vector<ConfigEntry>& entries) {
  std::vector<std::string> known;
  for (const CLI::Option* option : Options()) known.push_back(KeyOf(*option));
  for (const ConfigEntry& entry : entries) {
    if (std::find(known.begin(), known.end(), entry.key) != known.end()) continue;
    problems_.push_back(absl::StrCat(path_, ":", entry.line, ": \"", entry.key, "\" is no setting",
                                     MeantInstead(entry.key, known)));
  }
}

void Settings::ApplyContext(const std::string& named) {
  std::string name = named.empty() ? Environment(VariableOf(options_.prefix, kContext)) : named;
  for (const ConfigEntry& entry : file_.entries)
    if (name.empty() && entry.key == kContext && !entry.list) name = entry.values[0];
  if (name.empty()) return;
  std::vector<std::string> known;
  for (const ConfigContext& context : file_.contexts) {
    known.push_back(context.name);
    if (context.name != name) continue;
    ApplyEntries(context.entries);
    if (!named.empty()) PutOverEnvironment(context.entries);
    return;
  }
  const std::string where = path_.empty() ? "there is no configuration file"
                            : known.empty()
                                ? absl::StrCat(path_, " has no contexts")
                                : absl::StrCat(path_, " has ", absl::StrJoin(known, ", "));
  problems_.push_back(
      absl::StrCat("the context \"", name, "\" is not known: ", where, MeantInstead(name, known)));
}

void Settings::ApplyEntries(const std::vector<ConfigEntry>& entries) {
  const std::vector<CLI::Option*> options = Options();
  for (const ConfigEntry& entry : entries) {
    const auto option = std::find_if(options.begin(), options.end(), [&](const CLI::Option* known) {
      return KeyOf(*known) == entry.key;
    });
    if (option == options.end()) continue;  // CheckKeys has said so.
    const std::string where = absl::StrCat(path_, ":", entry.line);
    const std::string wrong = Apply(**option, {entry.values, where}, entry.list);
    if (!wrong.empty()) problems_.push_back(absl::StrCat(where, ": ", wrong));
  }
}

void Settings::PutOverEnvironment(const std::vector<ConfigEntry>& entries) {
  for (CLI::Option* option : Options()) {
    const bool given = std::any_of(entries.begin(), entries.end(), [&](const ConfigEntry& entry) {
      return entry.key == KeyOf(*option);
    });
    if (given) option->envname("");  // Parsing reads variables, too.
  }
}

void Settings::ApplyEnvironment() {
  for (CLI::Option* option : Options()) {
    const std::string value = Environment(option->get_envname());
    if (value.empty()) continue;
    const std::string wrong = Apply(*option, {{value}, "environment"}, /*list=*/false);
    if (wrong.empty()) continue;
    problems_.push_back(absl::StrCat(option->get_envname(), ": ", wrong));
    option->envname("");  // Else parsing would end with an error that names no variable.
  }
}

std::string Settings::Apply(CLI::Option& option, const Source& source, bool list) {
  bool on = false;
  if (list && !IsList(option)) return absl::StrCat(KeyOf(option), " is one value, and no list");
  if (source.values.empty()) {  // The library cannot be given none; a list has none by itself.
    sources_[&option] = source;
    return "";
  }
  if (IsFlag(option) && !absl::SimpleAtob(source.values[0], &on))
    return absl::StrCat(KeyOf(option), ": \"", source.values[0], "\" is neither true nor false");
  std::string wrong;
  try {
    for (const std::string& value : source.values) option.add_result(value);
    option.run_callback();
    sources_[&option] = source;
  } catch (const CLI::Error& error) {
    wrong = absl::StrCat(KeyOf(option), ": ", WhatIsWrong(option, source.values, error));
  }
  option.clear();
  return wrong;
}

Settings::Source Settings::SourceOf(const CLI::Option& option) const {
  const std::vector<CLI::Option*>& typed = app_.parse_order();
  if (std::find(typed.begin(), typed.end(), &option) != typed.end())
    return {option.results(), "flag"};
  if (const auto found = sources_.find(&option); found != sources_.end()) return found->second;
  return {{fallbacks_.at(&option)}, "default"};
}

// As `config show` writes it, `store: ""` says that there is none.
bool Settings::Chosen(const CLI::Option& option) const {
  const Source source = SourceOf(option);
  return source.origin != "default" && source.values != std::vector<std::string>{""};
}

std::vector<std::string> Settings::Problems() const {
  std::vector<std::string> problems;
  for (const std::string& problem : problems_)
    problems.emplace_back(OneLine(absl::InvalidArgumentError(problem)).message());
  for (const CLI::Option* option : Options()) {
    if (!Chosen(*option)) continue;
    for (const CLI::Option* other : option->get_excludes()) {
      // Both say that they exclude the other.
      if (fallbacks_.count(other) == 0 || KeyOf(*other) < KeyOf(*option)) continue;
      if (!Chosen(*other)) continue;
      problems.push_back(absl::StrCat(KeyOf(*option), " (", SourceOf(*option).origin, ") and ",
                                      KeyOf(*other), " (", SourceOf(*other).origin,
                                      ") exclude each other"));
    }
  }
  return problems;
}

absl::Status Settings::Check() const {
  const std::vector<std::string> problems = Problems();
  return problems.empty() ? absl::OkStatus() : absl::InvalidArgumentError(problems.front());
}

std::vector<std::string> Settings::Warnings() const {
  std::vector<std::string> known = {VariableOf("", kConfig)};  // All without the prefix.
  for (const auto& [option, variable] : variables_)
    known.emplace_back(absl::StripPrefix(variable, options_.prefix));
  std::vector<std::string> warnings;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::pair<absl::string_view, absl::string_view> set =
        absl::StrSplit(*variable, absl::MaxSplits('=', 1));
    absl::string_view word = set.first;
    if (!absl::ConsumePrefix(&word, options_.prefix) || set.second.empty()) continue;
    if (IsOfKubernetes(set.first) || std::count(known.begin(), known.end(), word) > 0) continue;
    const std::string nearest = Nearest(std::string(word), known);
    if (nearest.empty()) continue;
    warnings.push_back(absl::StrCat("the variable ", set.first, " is no setting; did you mean ",
                                    options_.prefix, nearest, "?"));
  }
  return warnings;
}

std::vector<Setting> Settings::List() const {
  std::vector<Setting> settings;
  for (const CLI::Option* option : Options()) {
    Source source = SourceOf(*option);
    for (const CLI::Option* other : option->get_excludes()) {
      if (source.origin == "default" && fallbacks_.count(other) > 0 && Chosen(*other))
        source = {{""}, absl::StrCat("not with ", KeyOf(*other))};
    }
    settings.push_back({KeyOf(*option), variables_.at(option), option->get_description(),
                        fallbacks_.at(option), std::move(source.values), IsList(*option),
                        std::move(source.origin)});
  }
  return settings;
}

std::string ShownValue(const std::string& value) {
  const size_t scheme = value.find("://");
  if (scheme == std::string::npos) return value;
  const size_t begin = scheme + 3;
  const size_t at = value.substr(0, value.find('/', begin)).rfind('@');
  if (at == std::string::npos || at < begin) return value;
  return absl::StrCat(value.substr(0, begin), "***", value.substr(at));
}

}  // namespace stagewright
