#include "clients/cli/jobs/replan_command.h"

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "clients/cli/connection.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/jobs/job_name.h"
#include "clients/cli/view/plan_figures.h"
#include "clients/cli/view/table.h"
#include "common/base/units.h"
#include "common/config/number_checks.h"

namespace stagewright::cli {
namespace {

constexpr double kDefaultSeconds = 60;
// Beyond the limit of the search: judging both plans.
constexpr absl::Duration kMargin = absl::Seconds(30);

struct Options {
  std::string job;
  bool apply = false;
  double time_limit_seconds = kDefaultSeconds;
};

// "12 operators on w0/cpu0, w1/cpu0, micro-batch 4"
std::string StageText(const v1::Stage& stage, const v1::ReplanJobResponse& response) {
  std::vector<std::string> devices;
  for (const int32_t device : stage.devices())
    devices.push_back(device < response.devices_size() ? response.devices(device) : "?");
  return absl::StrCat(stage.nodes_size(),
                      stage.nodes_size() == 1 ? " operator on " : " operators on ",
                      absl::StrJoin(devices, ", "), ", micro-batch ", stage.micro_batch());
}

Table PlansTable(const v1::ReplanJobResponse& response) {
  Table table({"plan", "planner", ">stages", ">devices", ">step time", ">peak memory"});
  const auto add = [&](const char* name, const v1::Plan& plan) {
    table.Add({name, plan.provenance().planner(), absl::StrCat(plan.strategy().stages_size()),
               absl::StrCat(DevicesUsed(plan.strategy())),
               FormatDuration(Nanos(plan.evaluation().iteration_ns())),
               FormatBytes(PeakMemory(plan))});
  };
  add("present", response.present());
  if (response.has_better()) add("better", response.better());
  return table;
}

std::string Text(const v1::ReplanJobResponse& response, const Options& options) {
  std::string text = absl::StrCat(
      options.job, ": a step takes ", FormatDuration(Nanos(response.measured_step_ns())),
      ", predicted ", FormatDuration(Nanos(response.predicted_step_ns())), "\n\n",
      PlansTable(response).ToString());
  if (response.has_better()) {
    absl::StrAppend(&text, "\n");
    const auto& before = response.present().strategy().stages();
    const auto& after = response.better().strategy().stages();
    for (int s = 0; s < std::max(before.size(), after.size()); ++s) {
      const std::string was = s < before.size() ? StageText(before[s], response) : "-";
      const std::string is = s < after.size() ? StageText(after[s], response) : "-";
      absl::StrAppend(&text, "[", s, "] ", was == is ? was : absl::StrCat(was, " -> ", is), "\n");
    }
  }
  absl::StrAppend(&text, "\n", response.message(), "\n");
  if (response.applied()) {
    absl::StrAppend(&text, "the job goes on with it after step ", response.after_step(), "\n");
  } else if (response.has_better()) {
    absl::StrAppend(&text, "--apply carries it out\n");
  }
  return text;
}

nlohmann::json PlanJson(const v1::Plan& plan, const v1::ReplanJobResponse& response) {
  nlohmann::json stages = nlohmann::json::array();
  for (const v1::Stage& stage : plan.strategy().stages()) {
    std::vector<std::string> devices;
    for (const int32_t device : stage.devices()) devices.push_back(response.devices(device));
    stages.push_back({{"operators", std::vector<int>(stage.nodes().begin(), stage.nodes().end())},
                      {"devices", std::move(devices)},
                      {"micro_batch_size", stage.micro_batch()}});
  }
  return {{"planner", plan.provenance().planner()},
          {"cost_model", plan.provenance().cost_model()},
          {"fingerprint", absl::StrFormat("%016x", plan.fingerprint())},
          {"iteration_seconds", ToSeconds(Nanos(plan.evaluation().iteration_ns()))},
          {"memory_bytes", PeakMemory(plan).count()},
          {"stages", std::move(stages)}};
}

nlohmann::json Json(const v1::ReplanJobResponse& response, const Options& options) {
  nlohmann::json json = {{"job", options.job},
                         {"measured_step_seconds", ToSeconds(Nanos(response.measured_step_ns()))},
                         {"predicted_step_seconds", ToSeconds(Nanos(response.predicted_step_ns()))},
                         {"present", PlanJson(response.present(), response)},
                         {"applied", response.applied()},
                         {"message", response.message()}};
  if (response.has_better()) json["better"] = PlanJson(response.better(), response);
  if (response.applied()) json["after_step"] = response.after_step();
  return json;
}

int Run(const Options& options, const Globals& globals) {
  Connection connection(globals);
  v1::ReplanJobRequest request;
  request.set_name(options.job);
  request.set_apply(options.apply);
  request.set_time_limit_ns(FromSeconds(options.time_limit_seconds).count());
  v1::ReplanJobResponse response;
  const absl::Duration patience = absl::Seconds(options.time_limit_seconds) + kMargin;
  const absl::Status status = connection.Call(patience, [&](grpc::ClientContext* context) {
    return connection.jobs().ReplanJob(context, request, &response);
  });
  if (!status.ok()) return Report(status);
  std::cout << (globals.json() ? Json(response, options).dump(2) + "\n" : Text(response, options));
  return kSuccess;
}

}  // namespace

void AddReplanCommand(CLI::App& jobs, Globals& globals) {
  auto options = std::make_shared<Options>();
  CLI::App* replan = jobs.add_subcommand(
      "replan", "look for a better plan of a running job, by what its steps take");
  AddJobOption(*replan, options->job);
  replan->add_flag(
      "--apply", options->apply,
      "save the job's state and go on from there with the better plan, if there is one");
  replan->add_option("--time-limit", options->time_limit_seconds, "seconds to search")
      ->check(Seconds())
      ->capture_default_str();
  AddOutputOption(*replan, globals);
  replan->callback([options, &globals] { globals.exit_code = Run(*options, globals); });
}

}  // namespace stagewright::cli
