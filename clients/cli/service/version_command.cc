#include "clients/cli/service/version_command.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "clients/cli/connection.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/view/event_view.h"

#ifndef STAGEWRIGHT_VERSION
#error "STAGEWRIGHT_VERSION comes from the build"
#endif

namespace stagewright::cli {
namespace {

int Run(const Globals& globals) {
  Connection connection(globals);
  v1::GetServerResponse server;
  const absl::Status status = connection.Call(absl::Seconds(10), [&](grpc::ClientContext* context) {
    return connection.planner().GetServer(context, v1::GetServerRequest(), &server);
  });
  if (globals.json()) {
    nlohmann::json json = {{"client", STAGEWRIGHT_VERSION}, {"planner", nullptr}};
    if (status.ok()) {
      json["planner"] = {{"version", server.version()}, {"started", TimeJson(server.start_time())}};
    }
    std::cout << json.dump(2) << std::endl;
  } else {
    std::cout << "stagewright  " << STAGEWRIGHT_VERSION << std::endl;
    if (status.ok()) {
      std::cout << "planner      " << server.version() << " at " << globals.planner_address
                << ", since " << TimeText(server.start_time()) << " UTC" << std::endl;
    }
  }
  return status.ok() ? kSuccess : Report(status);
}

}  // namespace

void AddVersionCommand(CLI::App& app, Globals& globals) {
  CLI::App* version = app.add_subcommand("version", "versions of this program and of the planner");
  AddOutputOption(*version, globals);
  version->callback([&globals] { globals.exit_code = Run(globals); });
}

}  // namespace stagewright::cli
