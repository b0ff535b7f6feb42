#include "clients/cli/local/local_cluster.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "clients/cli/connection.h"
#include "common/clock/steady_now.h"

namespace stagewright::cli {
namespace {

constexpr absl::Duration kStartPatience = absl::Seconds(60);
constexpr absl::Duration kEndPatience = absl::Seconds(10);
constexpr absl::Duration kPollInterval = absl::Milliseconds(50);
constexpr int kLogLines = 10;

absl::StatusOr<std::string> ProgramBeside(const std::string& name) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto path = self.parent_path() / name;
  if (!error && std::filesystem::exists(path, error)) return path.string();
  return absl::NotFoundError(absl::StrCat(name, " is not beside ", self.string(),
                                          ": build or install both in one folder"));
}

// What the planner says when it serves: "stagewright-planner: listening on HOST:PORT[, metrics on
// ...]".
std::string AnnouncedAddress(const std::string& log) {
  constexpr std::string_view kWords = "listening on ";
  const size_t begin = log.find(kWords);
  if (begin == std::string::npos || log.find('\n', begin) == std::string::npos) return "";
  const size_t address = begin + kWords.size();
  return log.substr(address, log.find_first_of(",\n", address) - address);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(
    const LocalClusterOptions& options, Pause pause) {
  ASSIGN_OR_RETURN(const std::string planner, ProgramBeside("stagewright-planner"));
  ASSIGN_OR_RETURN(const std::string worker, ProgramBeside("stagewright-worker"));
  std::unique_ptr<LocalCluster> cluster(new LocalCluster(options));
  RETURN_IF_ERROR(cluster->StartPlanner(planner, pause));
  for (int i = 0; i < options.workers; ++i) {
    RETURN_IF_ERROR(cluster->StartWorker(worker, i));
  }
  RETURN_IF_ERROR(cluster->AwaitWorkers(pause));
  return cluster;
}

LocalCluster::~LocalCluster() {
  if (processes_.empty()) return;
  // All workers at once, none of which another one is left to take jobs from: SIGTERM would have
  // them save first.
  for (size_t i = 1; i < processes_.size(); ++i) processes_[i].Signal(SIGINT);
  const absl::Time deadline = SteadyNow() + kEndPatience;
  for (size_t i = 1; i < processes_.size(); ++i) processes_[i].AwaitEnd(deadline - SteadyNow());
  processes_[0].Signal(SIGTERM);
  processes_[0].AwaitEnd(kEndPatience);
}

absl::Status LocalCluster::Check() {
  for (ChildProcess& process : processes_) {
    if (process.Running()) continue;
    return absl::FailedPreconditionError(absl::StrCat(process.name(), " ", process.HowItEnded(),
                                                      "; the end of its log:\n",
                                                      process.EndOfLog(kLogLines)));
  }
  return absl::OkStatus();
}

absl::Status LocalCluster::StartPlanner(const std::string& program, Pause pause) {
  const std::filesystem::path directory(options_.directory);
  ASSIGN_OR_RETURN(
      ChildProcess planner,
      ChildProcess::Start({.name = "the planner",
                           .arguments = {program, "--listen", options_.listen, "--metrics-listen",
                                         "", "--state", directory / "state.db"},
                           .log = directory / "planner.log"}));
  processes_.push_back(std::move(planner));
  const absl::Time deadline = SteadyNow() + kStartPatience;
  while (address_.empty()) {
    RETURN_IF_ERROR(Check());
    if (SteadyNow() > deadline) return absl::DeadlineExceededError("the planner does not start");
    if (!pause(kPollInterval)) return absl::CancelledError("interrupted");
    address_ = AnnouncedAddress(processes_[0].Log());
  }
  return absl::OkStatus();
}

absl::Status LocalCluster::StartWorker(const std::string& program, int index) {
  const std::string name = absl::StrCat("worker", index);
  ASSIGN_OR_RETURN(
      ChildProcess worker,
      ChildProcess::Start(
          {.name = name,
           .arguments = {program, "--planner", address_, "--name", name, "--threads-per-device",
                         absl::StrCat(options_.threads_per_worker)},
           .log = std::filesystem::path(options_.directory) / (name + ".log")}));
  processes_.push_back(std::move(worker));
  return absl::OkStatus();
}

std::string LocalCluster::LogsOfMissing(const v1::ListWorkersResponse& registered) const {
  std::string text;
  for (size_t i = 1; i < processes_.size(); ++i) {
    const ChildProcess& worker = processes_[i];
    const auto is_it = [&](const v1::Worker& other) { return other.name() == worker.name(); };
    if (std::any_of(registered.workers().begin(), registered.workers().end(), is_it)) continue;
    absl::StrAppend(&text, "; the end of ", worker.name(), "'s log:\n", worker.EndOfLog(kLogLines));
  }
  return text;
}

absl::Status LocalCluster::AwaitWorkers(Pause pause) {
  Connection connection(address_, {});
  const absl::Time deadline = SteadyNow() + kStartPatience;
  while (true) {
    RETURN_IF_ERROR(Check());
    v1::ListWorkersResponse response;
    RETURN_IF_ERROR(connection.Call(kStartPatience, [&](grpc::ClientContext* context) {
      return connection.jobs().ListWorkers(context, v1::ListWorkersRequest(), &response);
    }));
    if (response.workers_size() >= options_.workers) return absl::OkStatus();
    if (SteadyNow() > deadline) {
      return absl::DeadlineExceededError(absl::StrFormat(
          "%d of %d workers registered in %s%s", response.workers_size(), options_.workers,
          absl::FormatDuration(kStartPatience), LogsOfMissing(response)));
    }
    if (!pause(kPollInterval)) return absl::CancelledError("interrupted");
  }
}

}  // namespace stagewright::cli
