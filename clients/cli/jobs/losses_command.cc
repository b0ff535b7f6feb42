#include "clients/cli/jobs/losses_command.h"

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/cli/connection.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/jobs/job_name.h"
#include "clients/cli/view/table.h"
#include "common/base/units.h"

namespace stagewright::cli {
namespace {

constexpr absl::Duration kCallDeadline = absl::Seconds(30);

// Enough digits to give back the same number.
std::string Exact(double value) { return absl::StrFormat("%.17g", value); }

std::string Csv(const v1::ListJobStepsResponse& response) {
  std::string out = "step,loss,learning_rate,step_seconds,skipped\n";
  for (const v1::JobStep& step : response.steps()) {
    absl::StrAppend(&out, step.step(), ",", Exact(step.loss()), ",", Exact(step.learning_rate()),
                    ",", Exact(ToSeconds(Nanos(step.step_ns()))), ",", step.skipped() ? 1 : 0,
                    "\n");
  }
  return out;
}

nlohmann::json Json(const v1::ListJobStepsResponse& response) {
  nlohmann::json steps = nlohmann::json::array();
  for (const v1::JobStep& step : response.steps()) {
    steps.push_back({{"step", step.step()},
                     {"loss", step.loss()},
                     {"learning_rate", step.learning_rate()},
                     {"step_seconds", ToSeconds(Nanos(step.step_ns()))},
                     {"skipped", step.skipped()}});
  }
  return {{"steps", std::move(steps)}, {"stride", response.stride()}};
}

std::string Text(const v1::ListJobStepsResponse& response) {
  Table table({">step", ">loss", ">learning rate", ">time", ""});
  for (const v1::JobStep& step : response.steps()) {
    table.Add({absl::StrCat(step.step()), absl::StrFormat("%.6g", step.loss()),
               absl::StrFormat("%.6g", step.learning_rate()), FormatDuration(Nanos(step.step_ns())),
               step.skipped() ? "update skipped" : ""});
  }
  return table.ToString();
}

int RunLosses(const std::string& name, const std::string& output, const Globals& globals) {
  Connection connection(globals);
  v1::ListJobStepsRequest request;
  request.set_name(name);
  v1::ListJobStepsResponse response;
  const absl::Status status = connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.jobs().ListJobSteps(context, request, &response);
  });
  if (!status.ok()) return Report(status);
  std::cout << (output == "csv"    ? Csv(response)
                : output == "json" ? Json(response).dump(2) + "\n"
                                   : Text(response));
  return kSuccess;
}

}  // namespace

void AddLossesCommand(CLI::App& jobs, Globals& globals) {
  auto name = std::make_shared<std::string>();
  auto output = std::make_shared<std::string>("table");
  CLI::App* losses = jobs.add_subcommand(
      "losses", "loss, learning rate and time of a job's steps; of long jobs, evenly fewer");
  AddJobOption(*losses, *name);
  losses->add_option("-o,--output", *output, "table for people, json and csv for programs")
      ->check(CLI::IsMember({"table", "json", "csv"}))
      ->capture_default_str();
  losses->callback(
      [name, output, &globals] { globals.exit_code = RunLosses(*name, *output, globals); });
}

}  // namespace stagewright::cli
