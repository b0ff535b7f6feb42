// What clients are told of a store that does not take what it is given.
#pragma once

#include "common/base/status.h"

namespace stagewright {

// That a store is another planner's now is no fault of the request, which that planner will answer.
inline absl::Status ToldOf(const absl::Status& trouble) {
  return absl::IsFailedPrecondition(trouble) ? absl::UnavailableError(trouble.message()) : trouble;
}

}  // namespace stagewright
