// The cluster a job is planned on: registered devices and what is known of the links between them.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/topology/cluster.h"
#include "planner_service/registry/link_table.h"
#include "planner_service/registry/worker_registry.h"

namespace stagewright {

// Devices with equal host address share a machine. Where all of them at once are slower than one
// alone, their rates are those that were measured then, or else a share of the cores each;
// job_links.h says what their links are, and the name of the cluster which of them were measured.
// Device i of the cluster is devices[i].
absl::StatusOr<Cluster> JobCluster(const std::vector<RegisteredDevice>& devices,
                                   const LinkTable& table);

}  // namespace stagewright
