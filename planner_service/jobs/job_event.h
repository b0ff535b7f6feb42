// What happened to jobs and workers, with times: why a job started again at three in the morning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/log/log.h"

namespace stagewright {

enum class JobState;

enum class EventKind {
  kSubmitted,
  kState,  // The job came to Event::state.
  kWorkerLost,
  kWorkerBack,
  kRestarted,  // A run ended without the job, which starts again.
  kCheckpoint,
  kCheckpointFailed,
  kPlanChanged,
  kDrift,
  kRefused,  // The planning queue was full.
  kStoreFailed,
  kWorkerConnected,
  kPreempted,
  kGrowth,
  kStraggler,      // Devices of Event::worker are slower than their like.
  kStragglerGone,  // They are not any more.
  kQuarantined,    // Devices of Event::worker are kept from jobs for a while.
};

// "worker_lost": in logs, tables, JSON and metric labels.
absl::string_view EventKindName(EventKind kind);

// One of them, or several soon after each other that differ in nothing but time, message and step.
struct Event {
  absl::Time first, last;
  int64_t count = 1;
  EventKind kind = EventKind::kState;
  JobState state = {};  // The job's, after it.
  std::string message;  // The last one's.
  std::string job;      // "jobs/7"; empty of workers.
  std::string worker;   // Empty where none is concerned.
  int64_t generation = 0;
  int64_t step = 0;  // Steps that the job had done.
  // For the log alone, neither kept nor shown: the id of the request and the client's address.
  std::string request, client;
};

// Whether it is among what happened to workers, too: what says more of one than of its job is.
bool IsOfWorker(const Event& event);

// How many events of a job are kept, the first of them always.
inline constexpr size_t kMostJobEvents = 128;
inline constexpr size_t kFirstJobEvents = 16;

// Adds an event behind the others; together with one of the last four, if it is like that: what a
// job tries again and again must not drive out the rest. Of more than `most` the oldest after the
// first `keep` is dropped. O(events).
void Append(Event event, size_t most, size_t keep, std::vector<Event>& events);

// Its line of the log: failures are errors, losses and refusals warnings.
LogLine LineOf(const Event& event);
// Writes it.
void LogEvent(const Event& event);

}  // namespace stagewright
