// What makes a job's spec acceptable.
#pragma once

#include "common/base/status.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright {

// INVALID_ARGUMENT names the field.
absl::Status CheckSpec(const v1::JobSpec& spec);

}  // namespace stagewright
