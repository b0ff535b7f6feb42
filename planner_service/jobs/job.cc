#include "planner_service/jobs/job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"

namespace stagewright {

absl::string_view JobStateName(JobState state) {
  switch (state) {
    case JobState::kPending:
      return "pending";
    case JobState::kPlanning:
      return "planning";
    case JobState::kWaitingForDevices:
      return "waiting_for_devices";
    case JobState::kStarting:
      return "starting";
    case JobState::kRunning:
      return "running";
    case JobState::kRecovering:
      return "recovering";
    case JobState::kSucceeded:
      return "succeeded";
    case JobState::kFailed:
      return "failed";
    case JobState::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

bool IsTerminal(JobState state) {
  return state == JobState::kSucceeded || state == JobState::kFailed ||
         state == JobState::kCancelled;
}

bool Runs(JobState state) { return state == JobState::kRunning || state == JobState::kRecovering; }

bool OnWorkers(JobState state) { return state == JobState::kStarting || Runs(state); }

std::string Job::name() const { return absl::StrCat("jobs/", number); }

Event Job::EventOf(EventKind kind, std::string why, std::string worker) const {
  Event event;
  event.first = event.last = absl::Now();
  event.kind = kind;
  event.state = state;
  event.message = std::move(why);
  event.job = name();
  event.worker = std::move(worker);
  event.generation = generation;
  event.step = metrics.step;
  return event;
}

void Job::Warn(const std::string& warning) {
  if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end())
    warnings.push_back(warning);
}

std::string RunName(const Job& job) {
  return absl::StrCat("jobs-", job.number, "-", absl::Hex(absl::ToUnixNanos(job.create_time)));
}

int64_t JobNumber(absl::string_view name) {
  absl::string_view digits = name;
  int64_t number = -1;
  if (!absl::ConsumePrefix(&digits, "jobs/") || !absl::SimpleAtoi(digits, &number)) return -1;
  // Not "jobs/03" and "jobs/-3", which read as numbers, too.
  return number >= 0 && digits == absl::StrCat(number) ? number : -1;
}

}  // namespace stagewright
