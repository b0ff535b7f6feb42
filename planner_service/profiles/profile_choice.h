// Which measurements hold for the devices of a job.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/cost/measured/operator_profile.h"
#include "common/topology/cluster.h"
#include "planner_service/registry/worker_registry.h"

namespace stagewright {

// Kinds of devices in whose jobs nothing is measured that holds for others: a device of the kind
// shares its machine's cores with others, more threads than cores, or devices of the kind have
// several softwares.
std::set<std::string> UnlikeKinds(const std::vector<RegisteredDevice>& devices);

// Those of the devices' kinds, made with the software of the devices' workers, by the names that
// the kinds have in the cluster, whose device i is devices[i]. A kind whose devices have several
// softwares is left out.
OperatorProfile ProfileOf(const std::vector<RegisteredDevice>& devices, const Cluster& cluster,
                          const OperatorProfile& known);

}  // namespace stagewright
