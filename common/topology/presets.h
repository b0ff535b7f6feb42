// Clusters and kinds of devices by name.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/topology/cluster.h"

namespace stagewright {

// "summit:8", "dgx-a100:2", "dgx-h100:4", "cpu:4"; the number counts nodes. "uniform:..." as in
// uniform.h. NOT_FOUND lists the presets.
absl::StatusOr<Cluster> ClusterPreset(const std::string& name);
// Names and one-line descriptions of the presets, in order.
std::vector<std::pair<std::string, std::string>> ClusterPresets();

// A kind of device of the presets: "cpu-core", "h100-80g". NOT_FOUND lists them.
absl::StatusOr<DeviceKind> PresetDeviceKind(const std::string& name);

// A preset name, or else the path of a cluster file.
absl::StatusOr<Cluster> LoadCluster(const std::string& preset_or_path);

}  // namespace stagewright
