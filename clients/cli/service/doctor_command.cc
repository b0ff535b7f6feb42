#include "clients/cli/service/doctor_command.h"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "clients/cli/connection.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/service/diagnosis.h"
#include "clients/cli/service/gpu_diagnosis.h"
#include "clients/cli/service/health.h"
#include "clients/cli/view/table.h"

#ifndef STAGEWRIGHT_VERSION
#error "STAGEWRIGHT_VERSION comes from the build"
#endif

namespace stagewright::cli {
namespace {

constexpr absl::Duration kCallDeadline = absl::Seconds(30);
constexpr int kFailedJobsLookedAt = 200;

// Those that have not ended, however old they are, and of those that failed the newest.
absl::StatusOr<std::vector<v1::Job>> JobsToLookAt(Connection& connection) {
  std::vector<v1::Job> jobs;
  v1::ListJobsRequest unfinished, failed;
  for (const v1::JobState state :
       {v1::JOB_STATE_PENDING, v1::JOB_STATE_PLANNING, v1::JOB_STATE_WAITING_FOR_DEVICES,
        v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING, v1::JOB_STATE_RECOVERING})
    unfinished.add_states(state);
  failed.add_states(v1::JOB_STATE_FAILED);
  failed.set_page_size(kFailedJobsLookedAt);
  for (const bool all : {true, false}) {
    v1::ListJobsRequest request = all ? unfinished : failed;
    do {
      v1::ListJobsResponse page;
      RETURN_IF_ERROR(connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
        return connection.jobs().ListJobs(context, request, &page);
      }));
      jobs.insert(jobs.end(), page.jobs().begin(), page.jobs().end());
      request.set_page_token(page.next_page_token());
    } while (all && !request.page_token().empty());
  }
  return jobs;
}

// Everything that can be found with a planner that answers.
absl::StatusOr<std::vector<Finding>> Examine(Connection& connection) {
  v1::GetServerResponse server;
  RETURN_IF_ERROR(connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.planner().GetServer(context, v1::GetServerRequest(), &server);
  }));
  v1::ListWorkersResponse workers;
  RETURN_IF_ERROR(connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.jobs().ListWorkers(context, v1::ListWorkersRequest(), &workers);
  }));
  ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs, JobsToLookAt(connection));
  const bool writable = Serves(connection, v1::JobService::service_full_name(), kCallDeadline);
  std::vector<Finding> findings = {CheckVersions(STAGEWRIGHT_VERSION, server, workers),
                                   CheckWorkers(server, workers, absl::Now()),
                                   CheckState(server, writable), CheckQueue(server),
                                   CheckJobs(jobs, absl::Now())};
  for (Finding& finding : CheckGpus(workers)) findings.push_back(std::move(finding));
  v1::MeasureTopologyResponse topology;
  const absl::Status measured = connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.topology().MeasureTopology(context, v1::MeasureTopologyRequest(), &topology);
  });
  // Without workers there are no links.
  if (workers.workers_size() > 0) findings.push_back(CheckLinks(measured, topology));
  return findings;
}

std::string Text(const std::vector<Finding>& findings) {
  Table table({"what", "verdict", "seen"});
  for (const Finding& finding : findings)
    table.Add({finding.what, VerdictName(finding.verdict), finding.detail});
  std::string out = table.ToString();
  for (const Finding& finding : findings) {
    if (!finding.advice.empty()) absl::StrAppend(&out, "\n", finding.what, ": ", finding.advice);
  }
  return out + "\n";
}

nlohmann::json Json(const std::vector<Finding>& findings) {
  nlohmann::json list = nlohmann::json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"what", finding.what},
                    {"verdict", VerdictName(finding.verdict)},
                    {"seen", finding.detail},
                    {"advice", finding.advice}});
  }
  return {{"findings", std::move(list)}};
}

int Run(const Globals& globals) {
  Connection connection(globals);
  const auto findings = Examine(connection);
  if (!findings.ok()) return Report(findings.status());
  std::cout << (globals.json() ? Json(*findings).dump(2) + "\n" : Text(*findings));
  const bool bad = std::any_of(findings->begin(), findings->end(), [](const Finding& finding) {
    return finding.verdict == Verdict::kBad;
  });
  return bad ? kError : kSuccess;
}

}  // namespace

void AddDoctorCommand(CLI::App& app, Globals& globals) {
  CLI::App* doctor = app.add_subcommand(
      "doctor",
      "look at planner, workers, versions, state, links, jobs and GPUs, and say what to do");
  AddOutputOption(*doctor, globals);
  doctor->callback([&globals] { globals.exit_code = Run(globals); });
}

}  // namespace stagewright::cli
