// Which measurements hold for the devices of a job.
#pragma once

#include <vector>

#include "common/cost/measured/operator_profile.h"
#include "planner_service/registry/worker_registry.h"

namespace stagewright {

// Those of the devices' kinds, made with the software of the devices' workers. A kind whose devices
// have different software is left out.
OperatorProfile ProfileOf(const std::vector<RegisteredDevice>& devices,
                          const OperatorProfile& known);

}  // namespace stagewright
