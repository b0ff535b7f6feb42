// What clients are told of a store that does not take what it is given, or cannot be read.
#pragma once

#include "absl/time/time.h"
#include "common/base/error_details.h"
#include "common/base/status.h"

namespace stagewright {

// What is said of a read: what may pass says when a call may succeed (error_details.h), and
// FAILED_PRECONDITION stays what it is, damage.
inline absl::Status ToldOfRead(const absl::Status& trouble) {
  const bool may_pass = absl::IsUnavailable(trouble) || absl::IsResourceExhausted(trouble) ||
                        absl::IsDeadlineExceeded(trouble);
  // About what the store itself is given before it is tried again.
  return may_pass ? WithRetryAfter(trouble, absl::Seconds(5)) : trouble;
}

// What is said of a write: that a store is another planner's now is no fault of the request,
// which that planner will answer.
inline absl::Status ToldOf(const absl::Status& trouble) {
  return ToldOfRead(absl::IsFailedPrecondition(trouble) ? absl::UnavailableError(trouble.message())
                                                        : trouble);
}

}  // namespace stagewright
