// What programs read off an error, beside its code and its message for people: kept in the status
// as payloads, so that whoever passes an error on passes them on, too.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/status.h"

namespace stagewright {

struct ErrorDetails {
  std::string field;                          // What is wrong: "spec.mini_batch".
  std::string reason;                         // One of its code: "PLANNING_QUEUE_FULL".
  std::string resource;                       // What it is about: "jobs/7".
  std::optional<absl::Duration> retry_after;  // The same call may succeed then.
};

// Each adds one detail to an error; an OK status stays as it is.
absl::Status WithField(absl::Status status, absl::string_view field);
absl::Status WithReason(absl::Status status, absl::string_view reason);
absl::Status WithResource(absl::Status status, absl::string_view resource);
absl::Status WithRetryAfter(absl::Status status, absl::Duration after);

// Marks a file's error where the system's says that it may pass and is none of who asked: a full
// disk, a file system that does not answer. `error` is an errno.
absl::Status WithSystemError(absl::Status status, int error);
absl::Status WithStorageFault(absl::Status status);  // It is known to be such a one.
bool IsOfStorage(const absl::Status& status);

// All that were added.
ErrorDetails DetailsOf(const absl::Status& status);

}  // namespace stagewright
