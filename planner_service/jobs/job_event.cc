#include "planner_service/jobs/job_event.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner_service/jobs/job.h"

namespace stagewright {
namespace {

constexpr size_t kLookBack = 4;

bool IsAlike(const Event& a, const Event& b) {
  return a.kind == b.kind && a.state == b.state && a.job == b.job && a.worker == b.worker &&
         a.generation == b.generation;
}

LogLevel LevelOf(const Event& event) {
  switch (event.kind) {
    case EventKind::kState:
      if (event.state == JobState::kFailed) return LogLevel::kError;
      return event.state == JobState::kRecovering ? LogLevel::kWarning : LogLevel::kInfo;
    case EventKind::kStoreFailed:
      return LogLevel::kError;
    case EventKind::kWorkerLost:
    case EventKind::kRestarted:
    case EventKind::kCheckpointFailed:
    case EventKind::kDrift:
    case EventKind::kRefused:
    case EventKind::kStraggler:
    case EventKind::kQuarantined:
      return LogLevel::kWarning;
    default:
      return LogLevel::kInfo;
  }
}

}  // namespace

absl::string_view EventKindName(EventKind kind) {
  switch (kind) {
    case EventKind::kSubmitted:
      return "submitted";
    case EventKind::kState:
      return "state";
    case EventKind::kWorkerLost:
      return "worker_lost";
    case EventKind::kWorkerBack:
      return "worker_back";
    case EventKind::kRestarted:
      return "restarted";
    case EventKind::kCheckpoint:
      return "checkpoint";
    case EventKind::kCheckpointFailed:
      return "checkpoint_failed";
    case EventKind::kPlanChanged:
      return "plan_changed";
    case EventKind::kDrift:
      return "drift";
    case EventKind::kRefused:
      return "refused";
    case EventKind::kStoreFailed:
      return "store_failed";
    case EventKind::kWorkerConnected:
      return "worker_connected";
    case EventKind::kPreempted:
      return "preempted";
    case EventKind::kGrowth:
      return "growth";
    case EventKind::kStraggler:
      return "straggler";
    case EventKind::kStragglerGone:
      return "straggler_gone";
    case EventKind::kQuarantined:
      return "quarantined";
  }
  return "unknown";
}

bool IsOfWorker(const Event& event) {
  return event.job.empty() || event.kind == EventKind::kStraggler ||
         event.kind == EventKind::kStragglerGone || event.kind == EventKind::kQuarantined;
}

void Append(Event event, size_t most, size_t keep, std::vector<Event>& events) {
  const auto from = events.end() - static_cast<std::ptrdiff_t>(std::min(events.size(), kLookBack));
  const auto like =
      std::find_if(from, events.end(), [&](const Event& other) { return IsAlike(other, event); });
  if (like != events.end()) {
    event.first = like->first;
    event.count += like->count;
    events.erase(like);
  }
  events.push_back(std::move(event));
  if (events.size() > most) events.erase(events.begin() + static_cast<std::ptrdiff_t>(keep));
}

LogLine LineOf(const Event& event) {
  const bool state = event.kind == EventKind::kState;
  const absl::string_view what = state ? "job changed its state" : EventKindName(event.kind);
  return {event.last,
          LevelOf(event),
          "",
          std::string(what),
          {{"job", event.job},
           {"state", event.job.empty() ? "" : JobStateName(event.state)},
           {"worker", event.worker},
           {"generation", event.generation > 0 ? absl::StrCat(event.generation) : ""},
           {"step", event.step > 0 ? absl::StrCat(event.step) : ""},
           {"request", event.request},
           {"client", event.client},
           {"why", event.message}}};
}

void LogEvent(const Event& event) { WriteLine(LineOf(event)); }

}  // namespace stagewright
