// What a program is told: flags over environment over a YAML file over defaults.
//
// The flags of the program itself are the one table of settings. --planning-threads of
// stagewright-planner is the variable STAGEWRIGHT_PLANNER_PLANNING_THREADS and the key
// planning-threads; the file is that of --config, or of the variable made of it. Where a program
// has contexts, the file may hold several sets of settings by name, and --context chooses one,
// which comes over the rest of the file; given as a flag, also over the environment.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/config/config_file.h"

namespace stagewright {

struct Setting {
  std::string key;       // "planning-threads"; its flag is "--planning-threads".
  std::string variable;  // "STAGEWRIGHT_PLANNER_PLANNING_THREADS"
  std::string help;
  std::string fallback;  // The value where nobody says anything.
  std::vector<std::string> values;
  bool list = false;
  // "flag", "environment", "FILE:LINE", "default"; "not with KEY" where a setting that was given
  // excludes this one.
  std::string origin;
};

struct SettingsOptions {
  std::string prefix;  // "STAGEWRIGHT_PLANNER_"
  std::string file;    // Read where none is named and it is there; empty: none.
  bool contexts = false;
};

class Settings {
 public:
  // Adds --config and, where contexts are wanted, --context to `app`, which outlives this.
  Settings(CLI::App& app, SettingsOptions options);
  Settings(const Settings&) = delete;

  // After all flags of the program were added, and before the command line is parsed: names the
  // variables of those flags that have none, and gives the flags what file and environment say.
  // What is wrong with that is kept.
  void Load(int argc, const char* const* argv);

  // What is wrong, a line each, with file, line and key, or with the variable. After parsing, also
  // settings that exclude each other.
  std::vector<std::string> Problems() const;
  // INVALID_ARGUMENT with the first of them.
  absl::Status Check() const;

  // Variables of the program's prefix that are no setting's and may be misspelt, a line each; those
  // that Kubernetes sets for Services are none.
  std::vector<std::string> Warnings() const;

  // All settings as they are after parsing, in the order of the flags.
  std::vector<Setting> List() const;
  // The file that was read, or that would be; empty: none.
  const std::string& path() const { return path_; }
  const ConfigFile& file() const { return file_; }
  bool has_contexts() const { return options_.contexts; }

 private:
  struct Source {
    std::vector<std::string> values;
    std::string origin;
  };

  std::vector<CLI::Option*> Options() const;
  void ChooseFile(const std::string& named);
  void ReadFile();
  // Says which keys are no settings.
  void CheckKeys(const std::vector<ConfigEntry>& entries);
  void ApplyContext(const std::string& named);
  void ApplyEntries(const std::vector<ConfigEntry>& entries);
  // The variables of these settings do not count any more.
  void PutOverEnvironment(const std::vector<ConfigEntry>& entries);
  void ApplyEnvironment();
  // Gives the flag a value that the command line may replace; says what is wrong with it.
  std::string Apply(CLI::Option& option, const Source& source, bool list);
  Source SourceOf(const CLI::Option& option) const;
  // Whether somebody gave it a value that is not empty.
  bool Chosen(const CLI::Option& option) const;

  CLI::App& app_;
  const SettingsOptions options_;
  std::string path_, named_context_;  // What flags say of file and context.
  ConfigFile file_;
  std::map<const CLI::Option*, std::string> fallbacks_, variables_;
  std::map<const CLI::Option*, Source> sources_;  // What file or environment have set.
  std::vector<std::string> problems_;
};

// A value for people: what a URL has of passwords is hidden.
std::string ShownValue(const std::string& value);

}  // namespace stagewright
