#include "clients/cli/jobs/follow.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "clients/cli/view/job_view.h"
#include "common/clock/steady_now.h"
#include "common/wire/job_state.h"

namespace stagewright::cli {
namespace {

class ProgressPrinter {
 public:
  void Show(const v1::Job& job) {
    waiting_ = false;
    if (terminal_) {
      std::cerr << "\r\033[K" << ProgressLine(job) << std::flush;
    } else if (job.state() != last_state_ || job.message() != last_message_) {
      std::cerr << job.name() << " " << JobStateName(job.state())
                << (job.message().empty() ? "" : ": ") << job.message() << std::endl;
    }
    const std::string drift = absl::StrJoin(job.drift().causes(), "; ");
    if (!terminal_ && !drift.empty() && drift != last_drift_)
      std::cerr << job.name() << " drifts: " << drift << std::endl;
    last_drift_ = drift;
    const std::string stragglers = absl::StrJoin(
        job.stragglers(), ", ",
        [](std::string* out, const v1::Straggler& straggler) { *out += straggler.device(); });
    if (!terminal_ && !stragglers.empty() && stragglers != last_stragglers_)
      std::cerr << job.name() << " is held up by " << stragglers << std::endl;
    last_stragglers_ = stragglers;
    last_state_ = job.state();
    last_message_ = job.message();
  }
  // Once until the next job is shown.
  void SayWaiting(const absl::Status& status) {
    if (waiting_) return;
    waiting_ = true;
    End();
    std::cerr << "stagewright: " << status.message() << "; trying again" << std::endl;
  }
  void End() {
    if (terminal_) std::cerr << "\r\033[K" << std::flush;
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  bool waiting_ = false;
  v1::JobState last_state_ = v1::JOB_STATE_UNSPECIFIED;
  std::string last_message_;
  std::string last_drift_;
  std::string last_stragglers_;
};

constexpr absl::Duration kFirstRetry = absl::Milliseconds(200);
constexpr absl::Duration kLongestRetry = absl::Seconds(5);
constexpr absl::Duration kCallDeadline = absl::Seconds(30);

// Shows what comes after the version of `job`, which becomes the newest, until the stream ends.
absl::Status ReadStream(Connection& connection, const std::string& name, ProgressPrinter& printer,
                        v1::Job& job) {
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_name(name);
  request.set_after_version(job.version());
  auto stream = connection.jobs().WatchJob(&context, request);
  v1::WatchJobResponse response;
  while (stream->Read(&response)) {
    job = response.job();
    printer.Show(job);
  }
  return connection.Translate(stream->Finish());
}

// For a stream that had nothing newer to tell.
absl::Status ReadOnce(Connection& connection, const std::string& name, v1::Job& job) {
  v1::GetJobRequest request;
  request.set_name(name);
  v1::GetJobResponse response;
  RETURN_IF_ERROR(connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.jobs().GetJob(context, request, &response);
  }));
  job = response.job();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::Job> Follow(Connection& connection, const std::string& name,
                               const FollowOptions& options) {
  ProgressPrinter printer;
  v1::Job job;
  bool known = options.known;
  absl::Time answered = SteadyNow();
  absl::Duration retry = kFirstRetry;
  while (true) {
    const int64_t version = job.version();
    absl::Status status = ReadStream(connection, name, printer, job);
    if (status.ok() && !IsTerminal(job.state())) status = ReadOnce(connection, name, job);
    if (status.ok() && IsTerminal(job.state())) break;
    if (status.ok() || job.version() != version) {
      answered = SteadyNow();
      retry = kFirstRetry;
    }
    if (absl::IsOutOfRange(status) && version > 0) {  // The planner has an older state of the job.
      known = true;
      job.set_version(0);
      continue;
    }
    const bool waits = known || job.version() > 0;
    // A server that goes away cancels the calls that it has not answered.
    const bool again = status.ok() || absl::IsUnavailable(status) || absl::IsCancelled(status);
    if (!again || !waits || SteadyNow() > answered + options.patience) {
      printer.End();
      return status;
    }
    if (!status.ok()) printer.SayWaiting(status);
    absl::SleepFor(retry);
    retry = std::min(retry * 2, kLongestRetry);
  }
  printer.End();
  return job;
}

}  // namespace stagewright::cli
