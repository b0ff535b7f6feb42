// stagewright: plan, submit and watch pipeline-parallel training.
#include <CLI/CLI.hpp>
#include <iostream>
#include <optional>
#include <string>

#include "clients/cli/artifacts/artifact_commands.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/globals.h"
#include "clients/cli/jobs/job_commands.h"
#include "clients/cli/jobs/submit_command.h"
#include "clients/cli/jobs/topology_command.h"
#include "clients/cli/local/up_command.h"
#include "clients/cli/plain_output.h"
#include "clients/cli/plan/explain_command.h"
#include "clients/cli/plan/graph_commands.h"
#include "clients/cli/plan/plan_commands.h"
#include "clients/cli/profiles/profile_commands.h"
#include "clients/cli/service/completion_command.h"
#include "clients/cli/service/config_commands.h"
#include "clients/cli/service/doctor_command.h"
#include "clients/cli/service/help_command.h"
#include "clients/cli/service/version_command.h"
#include "common/artifacts/artifact_flags.h"
#include "common/channel/grpc_log.h"
#include "common/config/command_line.h"

namespace stagewright::cli {
namespace {

// What is wrong with the first word that is none of the command's, where it has commands; else
// empty.
std::string UnknownWord(const CLI::App& app, const CLI::App& command) {
  for (const std::string& word : app.remaining(/*recurse=*/true)) {
    if (!word.empty() && word[0] != '-') return UnknownCommand(word, command);
  }
  return "";
}

}  // namespace
}  // namespace stagewright::cli

static_assert(stagewright::cli::kUsage == stagewright::kWrongUsage);

int main(int argc, char** argv) {
  using namespace stagewright::cli;
  stagewright::SilenceGrpc();
  const PlainOutput plain_output(std::cout), plain_errors(std::cerr);
  Globals globals;
  CLI::App app("stagewright: plans pipeline-parallel training and runs it on workers");
  app.set_version_flag("--version", std::string("stagewright ") + STAGEWRIGHT_VERSION);
  app.add_option("--planner-address", globals.planner_address, "HOST:PORT of the planning service")
      ->envname("STAGEWRIGHT_PLANNER")
      ->capture_default_str();
  AddSecurityOptions(app, globals.security);
  stagewright::AddArtifactStoreFlag(app, globals.artifacts);
  stagewright::Settings settings(app, {"STAGEWRIGHT_", UserConfigFile(), /*contexts=*/true});
  app.require_subcommand(1);
  app.fallthrough();
  app.footer(
      "Exit codes: 0 success, 1 the request failed or doctor found something bad, 2 wrong usage,\n"
      "3 no plan exists or was found, 4 no planner, or no store of artifacts, answers,\n"
      "5 the watched job, or one of --verify, failed or was cancelled, 6 --verify found a "
      "difference.");
  AddPlanCommands(app, globals);
  AddExplainCommand(app, globals);
  AddGraphCommands(app, globals);
  AddSubmitCommand(app, globals);
  AddJobCommands(app, globals);
  AddArtifactCommands(app, globals);
  AddProfileCommands(app, globals);
  AddTopologyCommand(app, globals);
  AddUpCommand(app, globals);
  AddDoctorCommand(app, globals);
  AddVersionCommand(app, globals);
  AddCompletionCommand(app, globals);
  AddHelpCommand(app);
  AddConfigCommands(app, globals, settings);
  const std::optional<int> ends =
      stagewright::ParseCommandLine(app, settings, {"stagewright", argc, argv, UnknownWord});
  return ends.has_value() ? *ends : stagewright::AfterOutput("stagewright", globals.exit_code);
}
