#include "clients/cli/jobs/job_commands.h"

#include <algorithm>
#include <iostream>
#include <limits>
#include <memory>

#include "clients/cli/connection.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/files/write_file.h"
#include "clients/cli/jobs/losses_command.h"
#include "clients/cli/jobs/replan_command.h"
#include "clients/cli/jobs/watch.h"
#include "clients/cli/view/job_view.h"
#include "common/program/trace.h"
#include "common/wire/job_state.h"
#include "common/wire/strategy_proto.h"

namespace stagewright::cli {
namespace {

constexpr absl::Duration kCallDeadline = absl::Seconds(30);

int RunJobs(const Globals& globals) {
  Connection connection(globals);
  v1::ListJobsResponse all;
  std::string token;
  do {
    v1::ListJobsRequest request;
    request.set_page_size(200);
    request.set_page_token(token);
    v1::ListJobsResponse page;
    absl::Status status = connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
      return connection.jobs().ListJobs(context, request, &page);
    });
    if (!status.ok()) return Report(status);
    token = page.next_page_token();
    all.mutable_jobs()->MergeFrom(page.jobs());
  } while (!token.empty());
  if (globals.json()) {
    nlohmann::json list = nlohmann::json::array();
    for (const v1::Job& job : all.jobs()) list.push_back(JobJson(job));
    std::cout << nlohmann::json({{"jobs", std::move(list)}}).dump(2) << std::endl;
  } else {
    std::cout << JobsText(all);
  }
  return kSuccess;
}

int RunShow(const std::string& name, const Globals& globals) {
  Connection connection(globals);
  v1::GetJobRequest request;
  request.set_name(name);
  v1::GetJobResponse response;
  const absl::Status status = connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.jobs().GetJob(context, request, &response);
  });
  if (!status.ok()) return Report(status);
  if (globals.json()) {
    std::cout << JobJson(response.job()).dump(2) << std::endl;
    return kSuccess;
  }
  const std::string measured = MeasurementText(response.job());
  std::cout << JobSummary(response.job()) << (measured.empty() ? "" : "\n") << measured;
  return kSuccess;
}

int RunCancel(const std::string& name, const Globals& globals) {
  Connection connection(globals);
  v1::CancelJobRequest request;
  request.set_name(name);
  v1::CancelJobResponse response;
  absl::Status status = connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.jobs().CancelJob(context, request, &response);
  });
  if (!status.ok()) return Report(status);
  std::cout << response.job().name() << " " << JobStateName(response.job().state()) << std::endl;
  return kSuccess;
}

int RunWorkers(const Globals& globals) {
  Connection connection(globals);
  v1::ListWorkersResponse response;
  absl::Status status = connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.jobs().ListWorkers(context, v1::ListWorkersRequest(), &response);
  });
  if (!status.ok()) return Report(status);
  if (globals.json()) {
    std::cout << WorkersJson(response).dump(2) << std::endl;
  } else {
    std::cout << WorkersText(response);
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
  AddOutputOption(*jobs, globals);
  AddLossesCommand(*jobs, globals);
  AddReplanCommand(*jobs, globals);
  CLI::App* list = jobs->add_subcommand("list", "the same");
  AddOutputOption(*list, globals);
  list->callback([&globals] { globals.exit_code = RunJobs(globals); });
  auto shown = std::make_shared<std::string>();
  CLI::App* show = jobs->add_subcommand("show", "one job, its steps as measured and as predicted");
  show->add_option("job", *shown, "jobs/7")->required();
  AddOutputOption(*show, globals);
  show->callback([shown, &globals] { globals.exit_code = RunShow(*shown, globals); });
  jobs->callback([jobs, &globals] {
    if (jobs->get_subcommands().empty()) globals.exit_code = RunJobs(globals);
  });

  auto name = std::make_shared<std::string>();
  CLI::App* watch = app.add_subcommand("watch", "follow a job to its end");
  watch->add_option("job", *name, "jobs/7")->required();
  AddOutputOption(*watch, globals);
  watch->callback([name, &globals] {
    Connection connection(globals);
    globals.exit_code = Watch(connection, *name, globals);
  });

  CLI::App* cancel = app.add_subcommand("cancel", "end a job");
  cancel->add_option("job", *name, "jobs/7")->required();
  cancel->callback([name, &globals] { globals.exit_code = RunCancel(*name, globals); });

  CLI::App* workers = app.add_subcommand("workers", "list workers and their devices");
  AddOutputOption(*workers, globals);
  workers->callback([&globals] { globals.exit_code = RunWorkers(globals); });

  auto path = std::make_shared<std::string>("trace.json");
  CLI::App* trace = app.add_subcommand(
      "trace", "write a job's predicted and measured timelines as one Chrome trace");
  trace->add_option("job", *name, "jobs/7")->required();
  trace->add_option("--file", *path, "where to write it")->capture_default_str();
  trace->callback([name, path, &globals] { globals.exit_code = RunTrace(*name, *path, globals); });
}

}  // namespace stagewright::cli
