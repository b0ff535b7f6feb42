#include "clients/cli/jobs/logs_command.h"

#include <algorithm>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "clients/cli/connection.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/jobs/job_name.h"
#include "common/clock/steady_now.h"
#include "common/wire/job_state.h"
#include "common/wire/log_proto.h"

namespace stagewright::cli {
namespace {

constexpr absl::Duration kCallDeadline = absl::Seconds(30);
// Workers tell no more often what they logged.
constexpr absl::Duration kAskEvery = absl::Seconds(1);
constexpr absl::Duration kPatience = absl::Minutes(10);  // With a planner that does not answer.

struct LogsOptions {
  std::string job;
  bool follow = false;
  std::string worker;  // Empty: all, and the planner.
  std::string since;   // Empty: all that is kept.
  int tail = std::numeric_limits<int>::max();
};

// A time, or how long ago it was.
bool ReadTime(const std::string& text, absl::Time& time) {
  std::string error;
  absl::Duration ago;
  if (absl::ParseDuration(text, &ago) && ago >= absl::ZeroDuration()) {
    time = absl::Now() - ago;
    return true;
  }
  return absl::ParseTime(absl::RFC3339_full, text, &time, &error);
}

std::string CheckTime(const std::string& text) {
  absl::Time time;
  if (ReadTime(text, time)) return "";
  return "must be how long ago, 5m or 2h30m, or a time, 2026-11-22T03:14:15Z, not " + text;
}

// Shows lines as they come.
class LogPrinter {
 public:
  LogPrinter(const LogsOptions& options, LogFormat format)
      : worker_(options.worker), format_(format), tail_(options.tail) {
    if (!options.since.empty()) ReadTime(options.since, since_);
  }

  void Show(const v1::ListJobLogsResponse& log) {
    std::vector<const v1::JobLogLine*> shown;
    for (const v1::JobLogLine& line : log.lines()) {
      after_ = std::max(after_, line.position());
      const bool wanted = worker_.empty() || line.worker() == worker_;
      if (wanted && absl::FromUnixNanos(line.time_ns()) >= since_) shown.push_back(&line);
    }
    const size_t left_out = shown.size() - std::min(shown.size(), tail_);
    tail_ = std::numeric_limits<size_t>::max();  // All that follow.
    for (size_t i = left_out; i < shown.size(); ++i)
      std::cout << FormatLine(FromProto(*shown[i]), format_);
    std::cout << std::flush;
    dropped_ = log.dropped();
  }
  int64_t after() const { return after_; }
  int64_t dropped() const { return dropped_; }

 private:
  const std::string worker_;
  const LogFormat format_;
  absl::Time since_ = absl::InfinitePast();
  size_t tail_;
  int64_t after_ = 0;    // Position of the last line.
  int64_t dropped_ = 0;  // As the planner counts them.
};

int RunLogs(const LogsOptions& options, const Globals& globals) {
  Connection connection(globals);
  LogPrinter printer(options, globals.json() ? LogFormat::kJson : LogFormat::kText);
  absl::Time answered = absl::InfinitePast();
  bool waiting = false;
  bool ended = false;  // Its workers may have more to say just then.
  while (true) {
    v1::ListJobLogsRequest request;
    request.set_name(options.job);
    request.set_after_position(printer.after());
    v1::ListJobLogsResponse log;
    const absl::Status status = connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
      return connection.jobs().ListJobLogs(context, request, &log);
    });
    if (status.ok()) {
      printer.Show(log);
      answered = SteadyNow();
      waiting = false;
      if (!options.follow || std::exchange(ended, IsTerminal(log.state()))) break;
    } else {
      const bool again = absl::IsUnavailable(status) || absl::IsCancelled(status) ||
                         absl::IsDeadlineExceeded(status);
      if (!again || SteadyNow() > answered + kPatience) return Report(status);
      if (!waiting) std::cerr << "stagewright: " << status.message() << "; trying again\n";
      waiting = true;
    }
    absl::SleepFor(kAskEvery);
  }
  if (printer.dropped() > 0)
    std::cerr << "stagewright: " << printer.dropped() << " older lines are not kept\n";
  return kSuccess;
}

}  // namespace

void AddLogsCommand(CLI::App& jobs, Globals& globals) {
  auto options = std::make_shared<LogsOptions>();
  CLI::App* logs = jobs.add_subcommand("logs", "what planner and workers logged about a job");
  AddJobOption(*logs, options->job);
  logs->add_flag("-f,--follow", options->follow, "show what follows, too, until the job has ended");
  logs->add_option("--worker", options->worker, "only what this worker logged");
  logs->add_option("--since", options->since, "only what is not older: 5m, or 2026-11-22T03:14:15Z")
      ->check(CheckTime);
  logs->add_option("--tail", options->tail, "only the last lines")
      ->check(CLI::Range(0, std::numeric_limits<int>::max()));
  AddOutputOption(*logs, globals);
  logs->callback([options, &globals] { globals.exit_code = RunLogs(*options, globals); });
}

}  // namespace stagewright::cli
