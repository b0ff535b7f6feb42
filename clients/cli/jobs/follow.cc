#include "clients/cli/jobs/follow.h"

#include <unistd.h>

#include <iostream>

#include "absl/strings/str_join.h"
#include "clients/cli/view/job_view.h"
#include "common/wire/job_state.h"

namespace stagewright::cli {
namespace {

class ProgressPrinter {
 public:
  void Show(const v1::Job& job) {
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
    last_state_ = job.state();
    last_message_ = job.message();
  }
  void End() {
    if (terminal_) std::cerr << "\r\033[K" << std::flush;
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  v1::JobState last_state_ = v1::JOB_STATE_UNSPECIFIED;
  std::string last_message_;
  std::string last_drift_;
};

}  // namespace

absl::StatusOr<v1::Job> Follow(Connection& connection, const std::string& name) {
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_name(name);
  auto stream = connection.jobs().WatchJob(&context, request);
  ProgressPrinter printer;
  v1::WatchJobResponse response;
  v1::Job job;
  while (stream->Read(&response)) {
    job = response.job();
    printer.Show(job);
  }
  printer.End();
  RETURN_IF_ERROR(connection.Translate(stream->Finish()));
  return job;
}

}  // namespace stagewright::cli
