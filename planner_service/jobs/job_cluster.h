// The cluster a job is planned on: registered devices and what is known of the links between them.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/topology/cluster.h"
#include "planner_service/registry/worker_registry.h"

namespace stagewright {

// Devices with equal host address share a machine: transfers between them pass through its memory,
// others through both machines' uplinks. Rates are defaults (shared memory 5 GB/s and 30 us,
// uplink 1.25 GB/s and 50 us) until workers measure them. Device i of the cluster is devices[i].
absl::StatusOr<Cluster> JobCluster(const std::vector<RegisteredDevice>& devices);

}  // namespace stagewright
