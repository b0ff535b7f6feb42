// Cluster <-> stagewright.v1.Cluster.
#pragma once

#include "common/base/status.h"
#include "common/topology/cluster.h"
#include "stagewright/v1/topology.pb.h"

namespace stagewright {

v1::Cluster ToProto(const Cluster& cluster);
// INVALID_ARGUMENT names the field, as Cluster::Create does.
absl::StatusOr<Cluster> FromProto(const v1::Cluster& proto);

v1::DeviceKind ToProto(const DeviceKind& kind);
DeviceKind FromProto(const v1::DeviceKind& proto);
v1::Device ToProto(const Device& device);
Device FromProto(const v1::Device& proto);

}  // namespace stagewright
