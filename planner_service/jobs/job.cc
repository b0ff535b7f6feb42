#include "planner_service/jobs/job.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace stagewright {

bool IsTerminal(JobState state) {
  return state == JobState::kSucceeded || state == JobState::kFailed ||
         state == JobState::kCancelled;
}

bool Runs(JobState state) { return state == JobState::kRunning || state == JobState::kRecovering; }

bool OnWorkers(JobState state) { return state == JobState::kStarting || Runs(state); }

std::string Job::name() const { return absl::StrCat("jobs/", number); }

void Job::Warn(const std::string& warning) {
  if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end())
    warnings.push_back(warning);
}

int64_t JobNumber(absl::string_view name) {
  int64_t number = -1;
  return absl::ConsumePrefix(&name, "jobs/") && absl::SimpleAtoi(name, &number) ? number : -1;
}

}  // namespace stagewright
