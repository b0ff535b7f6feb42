#include "clients/cli/jobs/watch.h"

#include <iostream>

#include "absl/strings/str_cat.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/last_words.h"
#include "clients/cli/view/job_view.h"

namespace stagewright::cli {

int Watch(Connection& connection, const std::string& name, const Globals& globals,
          const FollowOptions& options) {
  const absl::StatusOr<v1::Job> job = [&] {
    const LastWords words(absl::StrCat(
        "stagewright: ", name, " is watched no longer, but not cancelled; \"stagewright watch ",
        name, "\" shows it again, \"stagewright cancel ", name, "\" ends it"));
    return Follow(connection, name, options);
  }();
  if (!job.ok()) return Report(job.status());
  if (globals.json()) {
    std::cout << JobJson(*job).dump(2) << std::endl;
  } else {
    std::cout << JobSummary(*job);
  }
  return job->state() == v1::JOB_STATE_SUCCEEDED ? kSuccess : kJobNotWell;
}

}  // namespace stagewright::cli
