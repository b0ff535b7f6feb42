// Which measurements hold for the devices of a job.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/cost/measured/operator_profile.h"
#include "planner_service/registry/worker_registry.h"

namespace stagewright {

// Kinds of devices that one profile cannot be true of: a device of the kind shares its machine's
// cores with others, more threads than cores, or devices of the kind have several softwares.
std::set<std::string> UnlikeKinds(const std::vector<RegisteredDevice>& devices);

// Those of the devices' kinds, made with the software of the devices' workers, but for UnlikeKinds:
// how much threads slow each other down was not measured.
OperatorProfile ProfileOf(const std::vector<RegisteredDevice>& devices,
                          const OperatorProfile& known);

}  // namespace stagewright
