#include "clients/cli/jobs/job_commands.h"

#include <algorithm>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "clients/cli/connection.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/files/write_file.h"
#include "clients/cli/jobs/describe_command.h"
#include "clients/cli/jobs/job_name.h"
#include "clients/cli/jobs/list_command.h"
#include "clients/cli/jobs/logs_command.h"
#include "clients/cli/jobs/losses_command.h"
#include "clients/cli/jobs/replan_command.h"
#include "clients/cli/jobs/watch.h"
#include "clients/cli/view/event_view.h"
#include "clients/cli/view/job_view.h"
#include "common/program/trace.h"
#include "common/wire/job_state.h"
#include "common/wire/strategy_proto.h"

namespace stagewright::cli {
namespace {

constexpr absl::Duration kCallDeadline = absl::Seconds(30);

// Calls for each of the jobs; the first error decides the exit code, the others go on.
template <typename F>
int ForEach(const std::vector<std::string>& names, const Globals& globals, F&& call) {
  Connection connection(globals);
  int code = kSuccess;
  for (const std::string& name : names) {
    const absl::Status status = call(connection, name);
    if (status.ok()) continue;
    const int failed = Report(status);
    if (code == kSuccess) code = failed;
    if (failed == kUnreachable) return code;
  }
  return code;
}

absl::Status Cancel(Connection& connection, const std::string& name) {
  v1::CancelJobRequest request;
  request.set_name(name);
  request.set_request_id(FreshId());
  v1::CancelJobResponse response;
  RETURN_IF_ERROR(connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.jobs().CancelJob(context, request, &response);
  }));
  std::cout << response.job().name() << " " << JobStateName(response.job().state()) << std::endl;
  return absl::OkStatus();
}

absl::Status Remove(Connection& connection, const std::string& name) {
  v1::DeleteJobRequest request;
  request.set_name(name);
  v1::DeleteJobResponse response;
  RETURN_IF_ERROR(connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.jobs().DeleteJob(context, request, &response);
  }));
  std::cout << name << " removed" << std::endl;
  return absl::OkStatus();
}

int RunWorkers(bool events, const Globals& globals) {
  Connection connection(globals);
  v1::ListWorkersRequest request;
  request.set_events(events);
  v1::ListWorkersResponse response;
  absl::Status status = connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.jobs().ListWorkers(context, request, &response);
  });
  if (!status.ok()) return Report(status);
  if (globals.json()) {
    nlohmann::json json = WorkersJson(response);
    if (events) json["events"] = EventsJson(response.events());
    std::cout << json.dump(2) << std::endl;
  } else {
    std::cout << WorkersText(response);
    if (events) std::cout << "\n" << EventsText(response.events());
  }
  return kSuccess;
}

int RunAvailability(const std::string& worker, v1::WorkerAvailability availability,
                    const Globals& globals) {
  Connection connection(globals);
  v1::SetWorkerAvailabilityRequest request;
  request.set_name(worker);
  request.set_availability(availability);
  v1::SetWorkerAvailabilityResponse response;
  absl::Status status = connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.jobs().SetWorkerAvailability(context, request, &response);
  });
  if (!status.ok()) return Report(status);
  v1::ListWorkersResponse shown;
  *shown.add_workers() = response.worker();
  if (globals.json()) {
    std::cout << WorkersJson(shown).dump(2) << std::endl;
  } else {
    std::cout << WorkersText(shown);
  }
  return kSuccess;
}

template <typename Events>
absl::StatusOr<std::vector<TraceEvent>> Convert(const Events& protos) {
  std::vector<TraceEvent> events;
  for (const auto& proto : protos) {
    ASSIGN_OR_RETURN(TraceEvent event, FromProto(proto));
    events.push_back(event);
  }
  return events;
}

// One recorded step, its times counted from its first action.
std::vector<TraceEvent> LastStep(const std::vector<TraceEvent>& events) {
  int32_t last = 0;
  for (const TraceEvent& event : events) last = std::max(last, event.step);
  std::vector<TraceEvent> step;
  Nanos origin = std::numeric_limits<Nanos>::max();
  for (const TraceEvent& event : events) {
    if (event.step != last) continue;
    step.push_back(event);
    origin = std::min(origin, event.start);
  }
  for (TraceEvent& event : step) {
    event.start -= origin;
    event.end -= origin;
  }
  return step;
}

int RunTrace(const std::string& name, const std::string& path, const Globals& globals) {
  Connection connection(globals);
  v1::GetJobTraceRequest request;
  request.set_name(name);
  v1::GetJobTraceResponse response;
  absl::Status status = connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.jobs().GetJobTrace(context, request, &response);
  });
  if (!status.ok()) return Report(status);
  auto measured = Convert(response.measured());
  auto predicted = Convert(response.predicted());
  if (!measured.ok() || !predicted.ok())
    return Report(measured.ok() ? predicted.status() : measured.status());
  const std::vector<std::string> devices(response.devices().begin(), response.devices().end());
  status = WriteFile(
      path, ChromeTrace({{"predicted", *predicted}, {"measured", LastStep(*measured)}}, devices));
  if (!status.ok()) return Report(status);
  std::cout << path << std::endl;
  return kSuccess;
}

}  // namespace

void AddJobCommands(CLI::App& app, Globals& globals) {
  CLI::App* jobs = app.add_subcommand("jobs", "list jobs, newest first");
  AddListCommand(*jobs, globals);
  AddDescribeCommands(*jobs, globals);
  AddLogsCommand(*jobs, globals);
  AddLossesCommand(*jobs, globals);
  AddReplanCommand(*jobs, globals);
  auto removed = std::make_shared<std::vector<std::string>>();
  CLI::App* remove = jobs->add_subcommand("rm", "forget jobs that have ended; their files stay");
  AddJobsOption(*remove, *removed);
  remove->callback([removed, &globals] { globals.exit_code = ForEach(*removed, globals, Remove); });

  auto name = std::make_shared<std::string>();
  CLI::App* watch = app.add_subcommand("watch", "follow a job to its end");
  AddJobOption(*watch, *name);
  AddOutputOption(*watch, globals);
  watch->callback([name, &globals] {
    Connection connection(globals);
    globals.exit_code = Watch(connection, *name, globals);
  });

  auto cancelled = std::make_shared<std::vector<std::string>>();
  CLI::App* cancel = app.add_subcommand("cancel", "end jobs");
  AddJobsOption(*cancel, *cancelled);
  cancel->callback(
      [cancelled, &globals] { globals.exit_code = ForEach(*cancelled, globals, Cancel); });

  CLI::App* workers = app.add_subcommand("workers", "list workers and their devices");
  auto events = std::make_shared<bool>(false);
  workers->add_flag("--events", *events, "and what happened to workers since the planner started");
  AddOutputOption(*workers, globals);
  workers->callback([workers, events, &globals] {
    if (workers->get_subcommands().empty()) globals.exit_code = RunWorkers(*events, globals);
  });
  const std::tuple<const char*, v1::WorkerAvailability, const char*> availabilities[] = {
      {"cordon", v1::WORKER_AVAILABILITY_CORDONED, "give a worker no new jobs"},
      {"drain", v1::WORKER_AVAILABILITY_DRAINING,
       "nor that: its jobs save their state and go on without it"},
      {"uncordon", v1::WORKER_AVAILABILITY_OPEN,
       "give a worker jobs again, also if its devices are in quarantine"}};
  for (const auto& [command, availability, help] : availabilities) {
    CLI::App* set = workers->add_subcommand(command, help);
    set->add_option("worker", *name, "as `workers` lists it")->required();
    AddOutputOption(*set, globals);
    set->callback([name, availability = availability, &globals] {
      globals.exit_code = RunAvailability(*name, availability, globals);
    });
  }

  auto path = std::make_shared<std::string>("trace.json");
  CLI::App* trace = app.add_subcommand(
      "trace", "write a job's predicted and measured timelines as one Chrome trace");
  AddJobOption(*trace, *name);
  trace->add_option("--file", *path, "where to write it")->capture_default_str();
  trace->callback([name, path, &globals] { globals.exit_code = RunTrace(*name, *path, globals); });
}

}  // namespace stagewright::cli
