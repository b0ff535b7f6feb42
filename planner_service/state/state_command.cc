#include "planner_service/state/state_command.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "planner_service/state/state_tools.h"

namespace stagewright {
namespace {

struct StateFlags {
  std::string state;
  std::string file;
  bool overwrite = false;
  bool drop = false;
  std::function<absl::StatusOr<int>()> action;
};

int Print(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) std::cout << line << "\n";
  return 0;
}

absl::StatusOr<int> Check(const StateFlags& flags) {
  ASSIGN_OR_RETURN(const StateReport report, CheckState(flags.state));
  for (const std::string& page : report.pages) std::cout << "file: " << page << "\n";
  for (const std::string& entry : report.damaged) std::cout << entry << "\n";
  for (const std::string& entry : report.set_aside)
    std::cout << entry << ": was damaged and is set aside\n";
  if (report.good()) {
    std::cout << flags.state << ": good, " << report.jobs << " jobs\n";
    return 0;
  }
  std::cout << "`stagewright-planner state repair` sets aside what is damaged, with --drop deletes "
               "it\n";
  return 1;
}

absl::StatusOr<int> BackUp(const StateFlags& flags) {
  RETURN_IF_ERROR(BackUpState(flags.state, flags.file));
  return Print({absl::StrCat(flags.file, " is a copy of ", flags.state)});
}

absl::StatusOr<int> Restore(const StateFlags& flags) {
  ASSIGN_OR_RETURN(const auto done, RestoreState(flags.file, flags.state, flags.overwrite));
  return Print(done);
}

absl::StatusOr<int> Repair(const StateFlags& flags) {
  ASSIGN_OR_RETURN(const auto done, RepairState(flags.state, flags.drop));
  return Print(done);
}

int Run(StateFlags& flags, const std::string& planners) {
  if (flags.state.empty()) flags.state = planners;
  const absl::StatusOr<int> result =
      flags.state.empty() ? absl::InvalidArgumentError("--store is no file: --state names one")
                          : flags.action();
  if (result.ok()) return *result;
  std::cerr << "stagewright-planner: " << result.status().message() << std::endl;
  return 1;
}

CLI::App* AddAction(CLI::App& command, const std::shared_ptr<StateFlags>& flags, const char* name,
                    const char* help, absl::StatusOr<int> (*action)(const StateFlags&)) {
  CLI::App* added = command.add_subcommand(name, help);
  added->add_option("--state", flags->state,
                    "SQLite file that keeps jobs (default: that of the planner's settings)");
  added->callback([flags = flags.get(), action] {
    flags->action = [flags, action] { return action(*flags); };
  });
  return added;
}

}  // namespace

StateCommand AddStateCommand(CLI::App& app) {
  const auto flags = std::make_shared<StateFlags>();
  CLI::App* command =
      app.add_subcommand("state", "checks, copies and repairs the state of a planner");
  command->require_subcommand(1);
  AddAction(*command, flags, "check", "says what of a state is damaged", Check);
  AddAction(*command, flags, "backup", "copies a state, which a planner may be using", BackUp)
      ->add_option("--out", flags->file, "the copy; must not be there")
      ->required();
  CLI::App* restore = AddAction(*command, flags, "restore", "puts a copy in place", Restore);
  restore->add_option("--from", flags->file, "a copy that `backup` made")->required();
  restore->add_flag("--overwrite", flags->overwrite,
                    "also over a state with other contents, which is moved aside");
  AddAction(*command, flags, "repair", "sets aside what a planner cannot read", Repair)
      ->add_flag("--drop", flags->drop, "deletes it, and what was set aside before");
  return {[command] { return command->parsed(); },
          [flags](const std::string& planners) { return Run(*flags, planners); }};
}

}  // namespace stagewright
