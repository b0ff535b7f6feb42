// What everybody asks of a job's state.
#pragma once

#include <string>

#include "stagewright/v1/job_service.pb.h"

namespace stagewright {

// SUCCEEDED, FAILED or CANCELLED: nothing changes any more.
bool IsTerminal(v1::JobState state);

// "waiting_for_devices": in tables, JSON and metric labels.
std::string JobStateName(v1::JobState state);

}  // namespace stagewright
