// What clients are told of a store that does not take what it is given, or cannot be read.
#pragma once

#include "absl/time/time.h"
#include "common/base/error_details.h"
#include "common/base/status.h"

namespace stagewright {

// That a store is another planner's now is no fault of the request, which that planner will answer.
// What may pass says when a call may succeed (error_details.h).
inline absl::Status ToldOf(const absl::Status& trouble) {
  const absl::Status told =
      absl::IsFailedPrecondition(trouble) ? absl::UnavailableError(trouble.message()) : trouble;
  const bool may_pass = absl::IsUnavailable(told) || absl::IsResourceExhausted(told) ||
                        absl::IsDeadlineExceeded(told);
  // About what the store itself is given before it is tried again.
  return may_pass ? WithRetryAfter(told, absl::Seconds(5)) : told;
}

}  // namespace stagewright
