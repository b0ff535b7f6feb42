#include "clients/cli/jobs/describe_command.h"

#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include "clients/cli/connection.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/jobs/job_name.h"
#include "clients/cli/view/event_view.h"
#include "clients/cli/view/job_view.h"

namespace stagewright::cli {
namespace {

constexpr absl::Duration kCallDeadline = absl::Seconds(30);

using Text = std::function<std::string(const v1::Job&)>;
using Json = std::function<nlohmann::json(const v1::Job&)>;

int Run(const std::string& name, const Globals& globals, const Text& text, const Json& json) {
  Connection connection(globals);
  v1::GetJobRequest request;
  request.set_name(name);
  v1::GetJobResponse response;
  const absl::Status status = connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.jobs().GetJob(context, request, &response);
  });
  if (!status.ok()) return Report(status);
  std::cout << (globals.json() ? json(response.job()).dump(2) + "\n" : text(response.job()));
  return kSuccess;
}

std::string Shown(const v1::Job& job) {
  const std::string measured = MeasurementText(job);
  return JobSummary(job) + (measured.empty() ? "" : "\n") + measured;
}

std::string Described(const v1::Job& job) {
  return JobSummary(job) + SpecText(job) + "\n" + EventsText(job.events());
}

nlohmann::json DescribedJson(const v1::Job& job) {
  nlohmann::json json = JobJson(job);
  json["spec"] = SpecJson(job.spec());
  json["events"] = EventsJson(job.events());
  return json;
}

}  // namespace

void AddDescribeCommands(CLI::App& jobs, Globals& globals) {
  const auto add = [&](const char* name, const char* help, const Text& text, const Json& json) {
    auto job = std::make_shared<std::string>();
    CLI::App* command = jobs.add_subcommand(name, help);
    AddJobOption(*command, *job);
    AddOutputOption(*command, globals);
    command->callback(
        [job, &globals, text, json] { globals.exit_code = Run(*job, globals, text, json); });
  };
  add("show", "one job, its steps as measured and as predicted", Shown, JobJson);
  add("describe", "one job, what was asked for and what happened to it", Described, DescribedJson);
  add(
      "events", "what happened to a job, with times",
      [](const v1::Job& job) { return EventsText(job.events()); },
      [](const v1::Job& job) {
        return nlohmann::json({{"events", EventsJson(job.events())}});
      });
}

}  // namespace stagewright::cli
