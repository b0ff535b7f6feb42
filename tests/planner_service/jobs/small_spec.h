// A job that tests submit.
#pragma once

#include "stagewright/v1/job_service.pb.h"

namespace stagewright::testing {

// A chain of linear layers that two workers can share.
v1::JobSpec SmallSpec();

}  // namespace stagewright::testing
