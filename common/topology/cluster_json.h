// Clusters as JSON.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/topology/cluster.h"

namespace stagewright {

// A cluster file: JSON, documented in docs/clusters.md. Errors name the field.
absl::StatusOr<Cluster> ParseCluster(const std::string& json, const std::string& file_name);
std::string ClusterToJson(const Cluster& cluster);

}  // namespace stagewright
